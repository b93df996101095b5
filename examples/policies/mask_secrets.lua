-- Keys that lie about in a sandbox are neither read by the file tools nor shown in what commands print.
return {
  default = "allow",
  rules = {
    { name = "no-keys", match = { "@read", "@write" }, path = { deny = { "**/.env", "**/.env.*", "**/.ssh/**", "**/*.pem" } } },
    {
      name = "masked",
      match = "@all",
      redact = {
        "AKIA[0-9A-Z]{16}",
        "gh[pousr]_[A-Za-z0-9]{36,}",
        "-----BEGIN [A-Z ]*PRIVATE KEY-----[\\s\\S]+?-----END [A-Z ]*PRIVATE KEY-----",
      },
    },
  },
}
