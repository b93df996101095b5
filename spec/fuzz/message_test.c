/* message_test.c - bytes that nobody would send, from a fixed seed: see message_fuzz.h. */
#include "fuzz/message_fuzz.h"

#ifdef DML_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
  fuzz_message(bytes, len);
  return 0;
}

#else

#include "support/check.h"

#define ROUNDS 60000
#define TEXT_MAX_BYTES 512

static const char *const SEEDS[] = {
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
    ("{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0000\\\"b\",\"method\":\"tools/call\","
     "\"params\":{\"name\":\"x\",\"arguments\":{\"k\":[1,2.5e3,null,true]}}}"),
    "{\"\\u0069d\":99999999999999999999,\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{}}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"\\ud83d\\ude00\"}}",
    "{\"id\":-0,\"id\":1.5,\"method\":7,\"x\":{\"id\":2},\"y\":[{\"id\":3}]}",
    "[{\"id\":1},[],{}]",
    "\"\xE2\x80\xA8\xE2\x80\xA9\xF0\x9F\x98\x80\"",
    "{\"result\":{},\"id\":null}",
};
static const char TOKENS[] = "{}[]:,\"\\ \t\r\nu0069did-+.eE01289ntf";

/* xorshift64, https://www.jstatsoft.org/article/view/v008i14 */
static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static size_t mutate(char *text, size_t len, uint64_t *state) {
  size_t at = len ? next_random(state) % len : 0;
  switch (next_random(state) % 5) {
  case 0: /* another byte */
    if (len) text[at] = (char)next_random(state);
    break;
  case 1: /* another token */
    if (len) text[at] = TOKENS[next_random(state) % (sizeof TOKENS - 1)];
    break;
  case 2: /* cut */ return at;
  case 3: /* one more */
    if (len >= TEXT_MAX_BYTES) break;
    memmove(text + at + 1, text + at, len - at);
    text[at] = TOKENS[next_random(state) % (sizeof TOKENS - 1)];
    return len + 1;
  default: /* one less */
    if (!len) break;
    memmove(text + at, text + at + 1, len - at - 1);
    return len - 1;
  }
  return len;
}

static void test_seeds(void) {
  for (size_t i = 0; i < sizeof SEEDS / sizeof *SEEDS; i++) fuzz_message((const uint8_t *)SEEDS[i], strlen(SEEDS[i]));
  CHECK(true);
}

static void test_mutations(void) {
  uint64_t state = 20260728;
  for (int round = 0; round < ROUNDS; round++) {
    char text[TEXT_MAX_BYTES + 1];
    const char *seed = SEEDS[next_random(&state) % (sizeof SEEDS / sizeof *SEEDS)];
    size_t len = strlen(seed);
    memcpy(text, seed, len);
    for (uint64_t times = 1 + next_random(&state) % 6; times > 0; times--) len = mutate(text, len, &state);
    fuzz_message((const uint8_t *)text, len);
  }
  CHECK(true);
}

int main(void) {
  CHECK_RUN(test_seeds);
  CHECK_RUN(test_mutations);
  return check_end();
}

#endif
