/* http_client_codes.h - what each CURLcode means to us: the one table.
 *
 * Columns: the code, the status while no head of a response has been seen, the status after it. A code that is left
 * out, because a later libcurl has it or because it belongs to another protocol, is a way of not getting through
 * (connection_failed; invalid_response once there was a head). */
#ifndef DML_NET_HTTP_CLIENT_CODES_H
#define DML_NET_HTTP_CLIENT_CODES_H

#define DML_HTTP_CLIENT_CODE_MAP(X)                                                                                    \
  X(CURLE_OK, OK, OK)                                                                                                  \
  /* what was asked for */                                                                                             \
  X(CURLE_URL_MALFORMAT, INVALID_ARGUMENT, INVALID_ARGUMENT)                                                           \
  X(CURLE_LOGIN_DENIED, INVALID_ARGUMENT, INVALID_ARGUMENT) /* a user name in the URL */                               \
  /* ours */                                                                                                           \
  X(CURLE_FAILED_INIT, INTERNAL, INTERNAL)                                                                             \
  X(CURLE_NOT_BUILT_IN, INTERNAL, INTERNAL)                                                                            \
  X(CURLE_BAD_FUNCTION_ARGUMENT, INTERNAL, INTERNAL)                                                                   \
  X(CURLE_UNKNOWN_OPTION, INTERNAL, INTERNAL)                                                                          \
  X(CURLE_SETOPT_OPTION_SYNTAX, INTERNAL, INTERNAL)                                                                    \
  X(CURLE_READ_ERROR, INTERNAL, INTERNAL)                                                                              \
  X(CURLE_RECURSIVE_API_CALL, INTERNAL, INTERNAL)                                                                      \
  X(CURLE_UNRECOVERABLE_POLL, INTERNAL, INTERNAL)                                                                      \
  /* the way there: names, proxies, connections */                                                                     \
  X(CURLE_COULDNT_RESOLVE_PROXY, CONNECTION_FAILED, CONNECTION_FAILED)                                                 \
  X(CURLE_COULDNT_RESOLVE_HOST, CONNECTION_FAILED, CONNECTION_FAILED)                                                  \
  X(CURLE_COULDNT_CONNECT, CONNECTION_FAILED, CONNECTION_FAILED)                                                       \
  X(CURLE_INTERFACE_FAILED, CONNECTION_FAILED, CONNECTION_FAILED)                                                      \
  X(CURLE_PROXY, CONNECTION_FAILED, INVALID_RESPONSE)                                                                  \
  X(CURLE_AUTH_ERROR, CONNECTION_FAILED, INVALID_RESPONSE) /* to a proxy; nothing else asks libcurl to log in */       \
  X(CURLE_NO_CONNECTION_AVAILABLE, CONNECTION_FAILED, CONNECTION_FAILED)                                               \
  X(CURLE_ABORTED_BY_CALLBACK, CONNECTION_FAILED, CONNECTION_FAILED) /* on_try: another user listens; no repetition */ \
  /* Only the connect timeout is libcurl's; the request's deadline is the core's. */                                   \
  X(CURLE_OPERATION_TIMEDOUT, CONNECTION_FAILED, PROVIDER_TIMEOUT)                                                     \
  /* TLS */                                                                                                            \
  X(CURLE_SSL_CONNECT_ERROR, CONNECTION_FAILED, INVALID_RESPONSE)                                                      \
  X(CURLE_SSL_ENGINE_NOTFOUND, CONNECTION_FAILED, INVALID_RESPONSE)                                                    \
  X(CURLE_SSL_ENGINE_SETFAILED, CONNECTION_FAILED, INVALID_RESPONSE)                                                   \
  X(CURLE_SSL_ENGINE_INITFAILED, CONNECTION_FAILED, INVALID_RESPONSE)                                                  \
  X(CURLE_SSL_CERTPROBLEM, CONNECTION_FAILED, INVALID_RESPONSE)                                                        \
  X(CURLE_SSL_CIPHER, CONNECTION_FAILED, INVALID_RESPONSE)                                                             \
  X(CURLE_PEER_FAILED_VERIFICATION, CONNECTION_FAILED, INVALID_RESPONSE)                                               \
  X(CURLE_SSL_CACERT_BADFILE, CONNECTION_FAILED, INVALID_RESPONSE)                                                     \
  X(CURLE_SSL_CRL_BADFILE, CONNECTION_FAILED, INVALID_RESPONSE)                                                        \
  X(CURLE_SSL_ISSUER_ERROR, CONNECTION_FAILED, INVALID_RESPONSE)                                                       \
  X(CURLE_SSL_PINNEDPUBKEYNOTMATCH, CONNECTION_FAILED, INVALID_RESPONSE)                                               \
  X(CURLE_SSL_INVALIDCERTSTATUS, CONNECTION_FAILED, INVALID_RESPONSE)                                                  \
  X(CURLE_SSL_CLIENTCERT, CONNECTION_FAILED, INVALID_RESPONSE)                                                         \
  X(CURLE_SSL_SHUTDOWN_FAILED, CONNECTION_FAILED, INVALID_RESPONSE)                                                    \
  X(CURLE_USE_SSL_FAILED, CONNECTION_FAILED, INVALID_RESPONSE)                                                         \
  /* the connection breaks */                                                                                          \
  X(CURLE_SEND_ERROR, CONNECTION_FAILED, INVALID_RESPONSE)                                                             \
  X(CURLE_SEND_FAIL_REWIND, CONNECTION_FAILED, INVALID_RESPONSE)                                                       \
  X(CURLE_RECV_ERROR, CONNECTION_FAILED, INVALID_RESPONSE)                                                             \
  X(CURLE_GOT_NOTHING, CONNECTION_FAILED, INVALID_RESPONSE)                                                            \
  X(CURLE_AGAIN, CONNECTION_FAILED, INVALID_RESPONSE)                                                                  \
  X(CURLE_HTTP2_STREAM, CONNECTION_FAILED, INVALID_RESPONSE) /* reset by the server */                                 \
  X(CURLE_HTTP3, CONNECTION_FAILED, INVALID_RESPONSE)                                                                  \
  X(CURLE_QUIC_CONNECT_ERROR, CONNECTION_FAILED, INVALID_RESPONSE)                                                     \
  /* what came is not HTTP */                                                                                          \
  X(CURLE_HTTP2, INVALID_RESPONSE, INVALID_RESPONSE)                                                                   \
  /* How 7.88 says that a header line is longer than its 100 KiB; memory itself fails elsewhere first. */              \
  X(CURLE_OUT_OF_MEMORY, INVALID_RESPONSE, INVALID_RESPONSE)                                                           \
  X(CURLE_UNSUPPORTED_PROTOCOL, INVALID_RESPONSE, INVALID_RESPONSE) /* an answer without a status line */              \
  X(CURLE_WEIRD_SERVER_REPLY, INVALID_RESPONSE, INVALID_RESPONSE)                                                      \
  X(CURLE_PARTIAL_FILE, INVALID_RESPONSE, INVALID_RESPONSE)                                                            \
  X(CURLE_BAD_CONTENT_ENCODING, INVALID_RESPONSE, INVALID_RESPONSE)                                                    \
  X(CURLE_WRITE_ERROR, INVALID_RESPONSE, INVALID_RESPONSE) /* the sink said stop */                                    \
  X(CURLE_FILESIZE_EXCEEDED, INVALID_RESPONSE, INVALID_RESPONSE)                                                       \
  X(CURLE_HTTP_RETURNED_ERROR, INVALID_RESPONSE, INVALID_RESPONSE)                                                     \
  X(CURLE_HTTP_POST_ERROR, INVALID_RESPONSE, INVALID_RESPONSE)                                                         \
  X(CURLE_RANGE_ERROR, INVALID_RESPONSE, INVALID_RESPONSE)                                                             \
  X(CURLE_TOO_MANY_REDIRECTS, INVALID_RESPONSE, INVALID_RESPONSE)                                                      \
  X(CURLE_CHUNK_FAILED, INVALID_RESPONSE, INVALID_RESPONSE)

#endif
