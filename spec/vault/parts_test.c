/* parts_test.c - vault/source, vault/vault, vault/origin: what is read, what is refused, and where it may go. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"
#include "vault/origin.h"
#include "vault/vault.h"

static dml_vault vault;
static char folder[64], path[128];

static bool is_loaded_with(const char *name, const char *want) {
  dml_credential *credential = dml_vault_find(&vault, name);
  size_t len;
  if (!credential || credential->secret == DML_SECRET_NONE) return false;
  dml_arena_enter_reading(&vault.secrets.arena);
  const unsigned char *bytes = dml_secrets_peek(&vault.secrets, credential->secret, &len);
  bool is_same = len == strlen(want) && memcmp(bytes, want, len) == 0;
  dml_arena_leave_reading(&vault.secrets.arena);
  return is_same;
}

static dml_status define(const char *name, const char *source) {
  const char *why = NULL;
  return dml_vault_define(&vault, name, source, strlen(source), false, &why);
}

static dml_status read_again(const char *name, bool *is_changed) {
  return dml_vault_read(&vault, dml_vault_find(&vault, name), is_changed);
}

static const char *cause_of(const char *name) {
  const dml_credential *credential = dml_vault_find(&vault, name);
  return credential->cause ? credential->cause : "";
}

static void write_file(const char *text, mode_t mode) {
  unlink(path);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
  close(fd);
}

static void test_sources_are_taken_apart(void) {
  static const char *const GOOD[] = {"env:A_1", "file:/a b:c", "cred:x.y", "cmd:/bin/pass show key", "cmd:/x"};
  static const char *const BAD[] = {
      "",        "env",      "env:",    "env:1A", "env:A-B",   "env:A=B",   "file:",     "file:a", "file:./a",
      "cred:",   "cred:a/b", "cred:..", "cred:.", "cmd:pass",  "cmd: /x",   "cmd:",      "ENV:A",  "pipe:x",
      "https:x", ":x",       "env :A",  " env:A", "file:/a\n", "cmd:/x\ty", "file:/\x7F"};
  const char *why;
  for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
    dml_source source;
    CHECK(dml_source_parse(&source, GOOD[i], strlen(GOOD[i]), &why) == DML_OK);
    CHECK(dml_source_is_same(&source, &source));
    dml_source_deinit(&source);
  }
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
    dml_source source;
    CHECK(dml_source_parse(&source, BAD[i], strlen(BAD[i]), &why) == DML_INVALID_ARGUMENT && why);
  }
  static char longest[DML_SOURCE_MAX_BYTES + 1];
  dml_source source;
  memset(longest, '/', sizeof longest);
  memcpy(longest, "file:", 5);
  CHECK(dml_source_parse(&source, longest, sizeof longest - 1, &why) == DML_INVALID_ARGUMENT);
  CHECK(dml_source_parse(&source, "env:A\0B", 7, &why) == DML_INVALID_ARGUMENT);
}

static void test_words_of_a_command(void) {
  dml_source source;
  const char *why;
  char copy[DML_SOURCE_MAX_BYTES], *words[DML_SOURCE_WORDS_MAX + 1];
  CHECK(dml_source_parse(&source, "cmd:/bin/a  b 'c d' ", 20, &why) == DML_OK);
  dml_source_words(&source, copy, words);
  CHECK(strcmp(words[0], "/bin/a") == 0 && strcmp(words[1], "b") == 0 && strcmp(words[2], "'c") == 0);
  CHECK(strcmp(words[3], "d'") == 0 && words[4] == NULL);
  dml_source_deinit(&source);
}

static void test_a_variable_is_read_at_once_and_wiped_when_it_may_be(void) {
  const char *why;
  char entry[] = "DML_SPEC_KEY=secret-of-the-environment";
  putenv(entry); /* the environment holds these very bytes */
  CHECK(define("kept", "env:DML_SPEC_KEY") == DML_OK && is_loaded_with("kept", "secret-of-the-environment"));
  CHECK(getenv("DML_SPEC_KEY") != NULL);
  CHECK(dml_vault_define(&vault, "wiped", "env:DML_SPEC_KEY", 16, true, &why) == DML_OK);
  CHECK(is_loaded_with("wiped", "secret-of-the-environment") && getenv("DML_SPEC_KEY") == NULL);
  for (size_t i = 13; i < sizeof entry; i++) CHECK(entry[i] == '\0');
  bool is_changed = true;
  CHECK(read_again("wiped", &is_changed) == DML_OK && !is_changed &&
        is_loaded_with("wiped", "secret-of-the-environment"));
  CHECK(define("absent", "env:DML_SPEC_NOT_THERE") == DML_OK &&
        read_again("absent", NULL) == DML_AUTHENTICATION_FAILED);
  CHECK(strcmp(cause_of("absent"), "The environment variable DML_SPEC_NOT_THERE is not set.") == 0);
  char shorter[] = "DML_SPEC_SHORT=1234567";
  putenv(shorter);
  CHECK(dml_vault_define(&vault, "short", "env:DML_SPEC_SHORT", 18, true, &why) == DML_OK &&
        getenv("DML_SPEC_SHORT") == NULL);
  CHECK(shorter[15] == '\0' && strcmp(cause_of("short"), "The secret is shorter than 8 bytes.") == 0);
}

static void test_a_file_is_private_and_regular(void) {
  char source[300], link_path[160];
  snprintf(source, sizeof source, "file:%s", path);
  CHECK(define("file", source) == DML_OK && read_again("file", NULL) == DML_AUTHENTICATION_FAILED &&
        strstr(cause_of("file"), path));
  static const mode_t OPEN[] = {0640, 0604, 0620, 0602, 0666, 0660};
  for (size_t i = 0; i < sizeof OPEN / sizeof *OPEN; i++) {
    write_file("secret-in-a-file\n", OPEN[i]);
    CHECK(read_again("file", NULL) == DML_AUTHENTICATION_FAILED && strstr(cause_of("file"), "chmod 600"));
  }
  write_file("secret-in-a-file\r\n", 0600);
  CHECK(read_again("file", NULL) == DML_OK && is_loaded_with("file", "secret-in-a-file") && *cause_of("file") == '\0');
  write_file("two\nlines-of-text\n", 0600);
  CHECK(read_again("file", NULL) == DML_AUTHENTICATION_FAILED && is_loaded_with("file", "secret-in-a-file"));
  CHECK(strcmp(cause_of("file"), "The secret holds a control character.") == 0);
  write_file("", 0600);
  CHECK(read_again("file", NULL) == DML_AUTHENTICATION_FAILED);
  bool is_changed = false;
  write_file("the-rotated-secret", 0400);
  CHECK(read_again("file", &is_changed) == DML_OK && is_changed && is_loaded_with("file", "the-rotated-secret"));
  CHECK(read_again("file", &is_changed) == DML_OK && !is_changed && vault.secrets.count == 1);
  snprintf(link_path, sizeof link_path, "%s/link", folder);
  snprintf(source, sizeof source, "file:%s", link_path);
  CHECK(symlink(path, link_path) == 0 && define("link", source) == DML_OK);
  CHECK(read_again("link", NULL) == DML_AUTHENTICATION_FAILED && strstr(cause_of("link"), "symbolic link"));
  unlink(link_path);
  CHECK(mkfifo(link_path, 0600) == 0 && read_again("link", NULL) == DML_AUTHENTICATION_FAILED);
  CHECK(strstr(cause_of("link"), "no regular file"));
  unlink(link_path);
  if (geteuid() == 0) {
    CHECK(chown(path, 12345, 12345) == 0 && read_again("file", NULL) == DML_AUTHENTICATION_FAILED);
    CHECK(strstr(cause_of("file"), "belongs to another user"));
  }
  unlink(path);
}

static void test_the_longest_secret_and_a_longer_one(void) {
  static char text[DML_SECRET_MAX_BYTES + 10];
  char source[160];
  snprintf(source, sizeof source, "file:%s", path);
  memset(text, 'x', sizeof text);
  memcpy(text + DML_SECRET_MAX_BYTES, "\r\n", 3);
  write_file(text, 0600);
  CHECK(define("long", source) == DML_OK && read_again("long", NULL) == DML_OK);
  text[DML_SECRET_MAX_BYTES] = 'x';
  write_file(text, 0600);
  CHECK(read_again("long", NULL) == DML_AUTHENTICATION_FAILED && strstr(cause_of("long"), "longer than 8192 bytes"));
  unlink(path);
}

static void test_a_credential_of_systemd(void) {
  char named[200];
  CHECK(define("cred", "cred:key") == DML_OK);
  unsetenv("CREDENTIALS_DIRECTORY");
  CHECK(read_again("cred", NULL) == DML_AUTHENTICATION_FAILED && strstr(cause_of("cred"), "$CREDENTIALS_DIRECTORY"));
  setenv("CREDENTIALS_DIRECTORY", "relative", 1);
  CHECK(read_again("cred", NULL) == DML_AUTHENTICATION_FAILED);
  setenv("CREDENTIALS_DIRECTORY", folder, 1);
  CHECK(read_again("cred", NULL) == DML_AUTHENTICATION_FAILED);
  snprintf(named, sizeof named, "%s/key", folder);
  write_file("secret-of-the-service", 0440); /* as with systemd's ACL */
  CHECK(rename(path, named) == 0 && read_again("cred", NULL) == DML_OK &&
        is_loaded_with("cred", "secret-of-the-service"));
  CHECK(chmod(named, 0444) == 0 && read_again("cred", NULL) == DML_AUTHENTICATION_FAILED);
  unlink(named);
  unsetenv("CREDENTIALS_DIRECTORY");
}

static void test_defining_again(void) {
  char same[] = "DML_SPEC_ONE=the-first-secret", other[] = "DML_SPEC_TWO=the-second-secret";
  putenv(same);
  putenv(other);
  CHECK(define("one", "env:DML_SPEC_ONE") == DML_OK && is_loaded_with("one", "the-first-secret"));
  unsetenv("DML_SPEC_ONE");
  CHECK(define("one", "env:DML_SPEC_ONE") == DML_OK && is_loaded_with("one", "the-first-secret"));
  CHECK(define("one", "env:DML_SPEC_TWO") == DML_OK && is_loaded_with("one", "the-second-secret") &&
        vault.secrets.count == 1);
  CHECK(define("one", "nonsense") == DML_INVALID_ARGUMENT && is_loaded_with("one", "the-second-secret"));
  CHECK(define("", "env:A") == DML_INVALID_ARGUMENT && define("a b", "env:A") == DML_INVALID_ARGUMENT);
  for (size_t i = 1; i < DML_VAULT_CREDENTIALS_MAX; i++) {
    char name[16];
    snprintf(name, sizeof name, "n%zu", i);
    CHECK(define(name, "cred:x") == DML_OK);
  }
  CHECK(define("too-many", "cred:x") == DML_QUOTA_EXCEEDED);
  unsetenv("DML_SPEC_TWO");
}

/* ---- from one process to the next ---- */

static void define_two(void) {
  char one[] = "DML_SPEC_ONE=the-first-secret", two[] = "DML_SPEC_TWO=the-second-secret";
  putenv(one);
  putenv(two);
  CHECK(define("one", "env:DML_SPEC_ONE") == DML_OK && define("two", "env:DML_SPEC_TWO") == DML_OK);
  CHECK(define("unread", "cred:x") == DML_OK);
  unsetenv("DML_SPEC_ONE");
  unsetenv("DML_SPEC_TWO");
}

static void test_loaded_secrets_go_through_a_pipe(void) {
  static const char *const NAMES[] = {"two", "unread", "nobody", "one"};
  int fds[2];
  size_t first = SIZE_MAX;
  define_two();
  CHECK(pipe(fds) == 0 && dml_vault_hand_over(&vault, fds[1], NAMES, 4, 1000) == DML_OK);
  dml_vault_deinit(&vault);
  CHECK(dml_vault_init(&vault) == DML_OK && dml_vault_take_over(&vault, fds[0], 4, 1000, &first) == DML_OK);
  CHECK(first == 0 && vault.count == 2 && is_loaded_with("one", "the-first-secret") &&
        is_loaded_with("two", "the-second-secret"));
  bool is_changed = true;
  CHECK(read_again("one", &is_changed) == DML_OK && !is_changed);
  CHECK(dml_vault_take_over(&vault, fds[0], 4, 10, &first) == DML_STOPPED); /* nobody writes */
  close(fds[1]);
  CHECK(dml_vault_take_over(&vault, fds[0], 4, 10, &first) == DML_INVALID_RESPONSE);
  close(fds[0]);
}

static void test_what_hand_over_did_not_write_is_refused(void) {
  static const char *const BAD[] = {
      "DMLV\2\1", "XXXXXX", "DMLV\1\1\0\1\1", "DMLV\1\1\3a/b\1\1", "DMLV\1\1\3abc\xFF\xFF", "DMLV\1\1\3abc\1"};
  static const size_t LENS[] = {6, 6, 9, 11, 11, 10};
  size_t first;
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
    int fds[2];
    CHECK(pipe(fds) == 0 && write(fds[1], BAD[i], LENS[i]) == (ssize_t)LENS[i]);
    close(fds[1]);
    CHECK(dml_vault_take_over(&vault, fds[0], 4, 100, &first) != DML_OK && vault.count == 0 &&
          vault.secrets.count == 0);
    close(fds[0]);
  }
  int fds[2];
  static const char TWICE[] = "DMLV\1\2\1a\0\x8"
                              "12345678"
                              "\1a\0\x8"
                              "12345678";
  CHECK(pipe(fds) == 0 && write(fds[1], TWICE, sizeof TWICE - 1) == sizeof TWICE - 1);
  CHECK(dml_vault_take_over(&vault, fds[0], 1, 100, &first) == DML_QUOTA_EXCEEDED);
  close(fds[0]);
  close(fds[1]);
  CHECK(pipe(fds) == 0 && write(fds[1], TWICE, sizeof TWICE - 1) == sizeof TWICE - 1);
  CHECK(dml_vault_take_over(&vault, fds[0], 2, 100, &first) == DML_INVALID_RESPONSE && vault.count == 0 &&
        vault.secrets.count == 0);
  close(fds[0]);
  close(fds[1]);
}

static void test_a_full_pipe_is_waited_for_and_no_longer(void) {
  static const char *const NAMES[] = {"one"};
  static char filler[65536];
  int fds[2];
  define_two();
  CHECK(pipe(fds) == 0 && fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0);
  while (write(fds[1], filler, sizeof filler) > 0) continue;
  CHECK(dml_vault_hand_over(&vault, fds[1], NAMES, 1, 20) == DML_STOPPED);
  close(fds[0]);
  CHECK(dml_vault_hand_over(&vault, fds[1], NAMES, 1, 20) == DML_INTERNAL);
  close(fds[1]);
}

/* ---- memory ---- */

/* A child that touches the arena outside of enter and leave ends by a signal. */
static void test_the_memory_is_closed_outside_of_use(void) {
  char key[] = "DML_SPEC_KEY=secret-of-the-environment";
  putenv(key);
  CHECK(define("key", "env:DML_SPEC_KEY") == DML_OK);
  for (int turn = 0; turn < 2; turn++) {
    pid_t pid = fork();
    if (pid == 0) {
      signal(SIGSEGV, SIG_DFL);
      signal(SIGBUS, SIG_DFL);
      const volatile unsigned char *at = turn ? vault.secrets.arena.scratch : vault.secrets.arena.memory;
      _exit(*at == 's' ? 1 : 2);
    }
    int end;
    CHECK(waitpid(pid, &end, 0) == pid && (WIFSIGNALED(end) || WEXITSTATUS(end) > 2));
  }
  unsetenv("DML_SPEC_KEY");
}

/* ---- origins ---- */

static bool reads_as(const char *url, bool is_https, const char *host, unsigned port) {
  dml_origin origin;
  return dml_origin_of_url(url, strlen(url), &origin) && origin.is_https == is_https && origin.port == port &&
         strcmp(origin.host, host) == 0;
}

static void test_origins_of_urls(void) {
  dml_origin origin;
  CHECK(reads_as("https://api.e2b.app", true, "api.e2b.app", 443));
  CHECK(reads_as("HTTPS://API.e2b.App:8443/x?y", true, "api.e2b.app", 8443));
  CHECK(reads_as("http://127.0.0.1:80?x", false, "127.0.0.1", 80));
  CHECK(reads_as("http://[::1]:3000#f", false, "[::1]", 3000) && reads_as("https://a/..//b@c", true, "a", 443));
  static const char *const BAD[] = {"",
                                    "https://",
                                    "https:///x",
                                    "ftp://a",
                                    "//a",
                                    "https:/a",
                                    "https:a",
                                    " https://a",
                                    "https://a b",
                                    "https://u@a",
                                    "https://u:p@a",
                                    "https://a\\b",
                                    "https://a\\@b",
                                    "https://a%2eb",
                                    "https://a:",
                                    "https://a:0",
                                    "https://a:65536",
                                    "https://a:443x",
                                    "https://a:000443",
                                    "https://a:+1",
                                    "https://.a",
                                    "https://a.",
                                    "https://[::1",
                                    "https://[]",
                                    "https://[::1]x",
                                    "https://[fe80::1%25lo]",
                                    "https://\xC3\xA9",
                                    "https://a\n",
                                    "https://a\t/"};
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) CHECK(!dml_origin_of_url(BAD[i], strlen(BAD[i]), &origin));
  CHECK(!dml_origin_of_url("https://a\0.e2b.app", 18, &origin));
  char longest[400];
  memset(longest, 'a', sizeof longest);
  memcpy(longest, "https://", 8);
  CHECK(dml_origin_of_url(longest, 8 + 253, &origin) && !dml_origin_of_url(longest, 8 + 254, &origin));
  CHECK(!dml_origin_of_url(longest, sizeof longest, &origin));
}

static bool is_safe(const char *url) {
  dml_origin origin;
  return dml_origin_of_url(url, strlen(url), &origin) && dml_origin_is_safe(&origin);
}

static bool is_below(const char *url, const char *domain) {
  dml_origin origin;
  return dml_origin_of_url(url, strlen(url), &origin) && dml_origin_is_below(&origin, domain);
}

static void test_what_is_safe_and_below(void) {
  CHECK(is_safe("https://x.y") && is_safe("http://127.0.0.1") && is_safe("http://[::1]:9") &&
        is_safe("http://localhost:1"));
  CHECK(!is_safe("http://127.0.0.2") && !is_safe("http://localhost.x") && !is_safe("http://x.y") &&
        !is_safe("http://127.1"));
  CHECK(is_below("https://49983-abc.e2b.app/files", "e2b.app") && is_below("https://a.b.e2b.app:443", "e2b.app"));
  CHECK(!is_below("https://e2b.app", "e2b.app") && !is_below("https://xe2b.app", "e2b.app"));
  CHECK(!is_below("https://a.e2b.app.evil.x", "e2b.app") && !is_below("http://a.e2b.app", "e2b.app"));
  CHECK(!is_below("https://a.e2b.app:8443", "e2b.app") && !is_below("https://evil.x/.e2b.app", "e2b.app"));
  CHECK(dml_origin_is_domain("e2b.app", 7) && dml_origin_is_domain("cn-x.e2b-fc.com", 15));
  CHECK(!dml_origin_is_domain("app", 3) && !dml_origin_is_domain(".app.x", 6) && !dml_origin_is_domain("E2B.app", 7));
  CHECK(!dml_origin_is_domain("1.2.3.4", 7) && !dml_origin_is_domain("a.b/", 4) && !dml_origin_is_domain("", 0));
}

#define WITH_VAULT(test)                                                                                               \
  do {                                                                                                                 \
    CHECK(dml_vault_init(&vault) == DML_OK);                                                                           \
    CHECK_RUN(test);                                                                                                   \
    dml_vault_deinit(&vault);                                                                                          \
  } while (0)

int main(void) {
  const char *base = getenv("DML_SPEC_TMP");
  snprintf(folder, sizeof folder, "%s/vault-XXXXXX", base ? base : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/secret", folder);
  CHECK_RUN(test_sources_are_taken_apart);
  CHECK_RUN(test_words_of_a_command);
  WITH_VAULT(test_a_variable_is_read_at_once_and_wiped_when_it_may_be);
  WITH_VAULT(test_a_file_is_private_and_regular);
  WITH_VAULT(test_the_longest_secret_and_a_longer_one);
  WITH_VAULT(test_a_credential_of_systemd);
  WITH_VAULT(test_defining_again);
  WITH_VAULT(test_loaded_secrets_go_through_a_pipe);
  WITH_VAULT(test_what_hand_over_did_not_write_is_refused);
  signal(SIGPIPE, SIG_IGN);
  WITH_VAULT(test_a_full_pipe_is_waited_for_and_no_longer);
  WITH_VAULT(test_the_memory_is_closed_outside_of_use);
  CHECK_RUN(test_origins_of_urls);
  CHECK_RUN(test_what_is_safe_and_below);
  rmdir(folder);
  return check_end();
}
