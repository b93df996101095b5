/* echo.c - sends back every byte: what the pipes themselves cost. */
#include <unistd.h>

int main(void) {
  char bytes[65536];
  ssize_t n;
  while ((n = read(0, bytes, sizeof bytes)) > 0)
    for (ssize_t done = 0; done < n;) {
      ssize_t sent = write(1, bytes + done, (size_t)(n - done));
      if (sent <= 0) return 1;
      done += sent;
    }
  return 0;
}
