/* listen.c - see listen.h. No names: which address they would mean is not for a server to guess. */
#include "net/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef union any_address {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
} any_address;

static socklen_t parse(const char *text, uint16_t port, any_address *out) {
  memset(out, 0, sizeof *out);
  if (inet_pton(AF_INET, text, &out->v4.sin_addr) == 1) {
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(port);
    return sizeof out->v4;
  }
  if (inet_pton(AF_INET6, text, &out->v6.sin6_addr) != 1) return 0;
  out->v6.sin6_family = AF_INET6;
  out->v6.sin6_port = htons(port);
  return sizeof out->v6;
}

dml_status dml_listen_tcp(const char *address, uint16_t port, int *fd, uint16_t *bound_port) {
  any_address at;
  int yes = 1;
  *fd = -1;
  socklen_t len = parse(address, port, &at);
  if (len == 0) return DML_INVALID_ARGUMENT;
  int s = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0) return dml_status_from_errno(errno);
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (at.any.sa_family == AF_INET6) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  if (bind(s, &at.any, len) != 0 || listen(s, SOMAXCONN) != 0 || getsockname(s, &at.any, &len) != 0) {
    dml_status status = dml_status_from_errno(errno);
    close(s);
    return status;
  }
  *fd = s;
  *bound_port = ntohs(at.any.sa_family == AF_INET ? at.v4.sin_port : at.v6.sin6_port);
  return DML_OK;
}
