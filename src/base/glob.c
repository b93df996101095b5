/* glob.c - a glob as a list of nodes in the order of the pattern.
 *
 * Nothing repeats but single wildcards, so every edge leads to the same node or to a later one: a set of live nodes is kept
 * as bits and swept upward once a character, and what an edge without a character adds is met in the same sweep. */
#include "base/glob.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* Nodes looked at in one match: this many, and some for each byte of the subject. About 3 ns each. */
#define WORK_BASE 1000000
#define WORK_A_BYTE 8
/* What a byte that is no UTF-8 counts as: beyond all characters. */
#define STRAY_BYTE 0x110000u

typedef enum node_kind {
  NODE_CHAR, /* the character a */
  NODE_ONE,  /* any character; in a path no slash */
  NODE_SET,  /* b of the ranges, from a; negated or not */
  NODE_RUN,  /* any run; in a path without slashes */
  NODE_DEEP, /* any run */
  NODE_FORK, /* the next node, or node a */
  NODE_JUMP, /* node a */
  NODE_END
} node_kind;

typedef struct node {
  uint8_t kind;
  bool is_negated;
  uint16_t b;
  uint32_t a;
} node;

typedef struct range {
  uint32_t low, high;
} range;

struct dml_glob {
  node *nodes;
  range *ranges;
  size_t count;
  bool is_path;
};

/* A node costs a byte of the pattern at least; an alternative two nodes more, a component `**` one more for its slash. */
#define NODES_MAX (2 * DML_GLOB_BYTES_MAX + 8)
#define WORDS_MAX (NODES_MAX / 64 + 1)

/* ---- compiling ---- */

typedef struct parser {
  const char *pattern;
  size_t len, at;
  dml_glob *glob;
  size_t range_count;
  int alternatives;
  char *why;
  size_t why_len;
} parser;

static bool parse_sequence(parser *p, int depth, bool *is_at_component);

static bool fail(parser *p, const char *why) {
  snprintf(p->why, p->why_len, "%s", why);
  return false;
}

static size_t add(parser *p, node_kind kind, uint32_t a) {
  p->glob->nodes[p->glob->count] = (node){.kind = (uint8_t)kind, .a = a};
  return p->glob->count++;
}

static bool at(const parser *p, char c) { return p->at < p->len && p->pattern[p->at] == c; }

static uint32_t decode(const char *s, size_t len, int *step) {
  int n = (unsigned char)*s < 0x80 ? 1 : dml_utf8_step(s, len);
  *step = n > 0 ? n : 1;
  if (n <= 0) return STRAY_BYTE + (unsigned char)*s;
  if (n == 1) return (unsigned char)*s;
  uint32_t c = (unsigned char)*s & (0x7Fu >> n);
  for (int i = 1; i < n; i++) c = c << 6 | ((unsigned char)s[i] & 0x3Fu);
  return c;
}

/* The character at the place, which must be there; the pattern is known to be UTF-8. */
static uint32_t take(parser *p) {
  int step;
  uint32_t c = decode(p->pattern + p->at, p->len - p->at, &step);
  p->at += (size_t)step;
  return c;
}

/* A character of a set or of plain text, the backslash before it taken off. */
static bool take_plain(parser *p, uint32_t *c) {
  if (at(p, '\\') && ++p->at >= p->len) return fail(p, "the \\ at the end has nothing behind it; write \\\\ for a backslash");
  *c = take(p);
  return true;
}

static bool parse_range(parser *p) {
  range r;
  if (!take_plain(p, &r.low)) return false;
  r.high = r.low;
  if (at(p, '-') && p->at + 1 < p->len && p->pattern[p->at + 1] != ']') {
    p->at++;
    if (!take_plain(p, &r.high)) return false;
  }
  if (r.high < r.low) return fail(p, "a range in [] ends before it begins");
  if (p->glob->is_path && r.low <= '/' && r.high >= '/') return fail(p, "a set in [] cannot hold /");
  p->glob->ranges[p->range_count++] = r;
  return true;
}

static bool parse_set(parser *p) {
  size_t first = p->range_count;
  p->at++;
  bool is_negated = at(p, '!');
  p->at += is_negated;
  if (at(p, '^')) return fail(p, "write [!a] for what is not in a set, or \\^ for a ^ in one");
  while (p->at < p->len && !at(p, ']'))
    if (!parse_range(p)) return false;
  if (p->at >= p->len) return fail(p, "the [ is not closed");
  if (p->range_count == first) return fail(p, "the [] is empty; write \\] for a ] in a set, \\[ for a [ as it stands");
  p->at++;
  size_t set = add(p, NODE_SET, (uint32_t)first);
  p->glob->nodes[set].b = (uint16_t)(p->range_count - first);
  p->glob->nodes[set].is_negated = is_negated;
  return true;
}

/* Stars; a component that is `**` takes the slash behind it along. Returns whether the next character begins a component. */
static bool parse_stars(parser *p, bool is_at_component) {
  size_t stars = 0;
  while (at(p, '*')) p->at++, stars++;
  bool is_deep = stars > 1 || !p->glob->is_path;
  if (!is_deep || !p->glob->is_path || !is_at_component || !at(p, '/')) {
    add(p, is_deep ? NODE_DEEP : NODE_RUN, 0);
    return false;
  }
  p->at++;
  size_t fork = add(p, NODE_FORK, 0);
  add(p, NODE_DEEP, 0);
  add(p, NODE_CHAR, '/');
  p->glob->nodes[fork].a = (uint32_t)p->glob->count;
  return true;
}

/* The jumps to the end of a group are chained through `a` until that end is known; 0 ends the chain (no jump is node 0). */
static void land(parser *p, size_t jump) {
  while (jump) {
    size_t next = p->glob->nodes[jump].a;
    p->glob->nodes[jump].a = (uint32_t)p->glob->count;
    jump = next;
  }
}

static bool parse_group(parser *p, int depth, bool *is_at_component) {
  if (depth >= DML_GLOB_NEST_MAX) return fail(p, "there are more than 8 { within each other");
  bool began_component = *is_at_component, ends_component = true;
  size_t jumps = 0;
  do {
    p->at++;
    if (++p->alternatives > DML_GLOB_ALTERNATIVES_MAX) return fail(p, "there are more than 256 alternatives in {}");
    size_t fork = add(p, NODE_FORK, 0);
    bool is_component = began_component;
    if (!parse_sequence(p, depth + 1, &is_component)) return false;
    ends_component = ends_component && is_component;
    if (p->at >= p->len) return fail(p, "the { is not closed");
    if (at(p, ',')) {
      jumps = add(p, NODE_JUMP, (uint32_t)jumps);
      p->glob->nodes[fork].a = (uint32_t)p->glob->count;
    } else {
      p->glob->nodes[fork].a = (uint32_t)fork + 1; /* the last one: no other way */
    }
  } while (at(p, ','));
  p->at++;
  land(p, jumps);
  *is_at_component = ends_component;
  return true;
}

/* One character that stands for itself. */
static bool parse_plain(parser *p, bool *is_at_component) {
  if (at(p, ']')) return fail(p, "there is a ] without a [; write \\] for a ] as it stands");
  if (at(p, '}')) return fail(p, "there is a } without a {; write \\} for a } as it stands");
  uint32_t c;
  if (!take_plain(p, &c)) return false;
  add(p, NODE_CHAR, c);
  *is_at_component = c == '/';
  return true;
}

static bool parse_sequence(parser *p, int depth, bool *is_at_component) {
  while (p->at < p->len) {
    char c = p->pattern[p->at];
    if (depth > 0 && (c == ',' || c == '}')) return true;
    bool is_good = true;
    if (c == '*') {
      *is_at_component = parse_stars(p, *is_at_component);
    } else if (c == '{') {
      is_good = parse_group(p, depth, is_at_component);
    } else if (c == '[') {
      is_good = parse_set(p);
      *is_at_component = false;
    } else if (c == '?') {
      add(p, NODE_ONE, 0);
      p->at++;
      *is_at_component = false;
    } else {
      is_good = parse_plain(p, is_at_component);
    }
    if (!is_good) return false;
  }
  return true;
}

static dml_glob *allocate(size_t len, bool is_path) {
  dml_glob *glob = calloc(1, sizeof *glob);
  if (!glob) return NULL;
  glob->is_path = is_path;
  glob->nodes = malloc((2 * len + 8) * sizeof *glob->nodes);
  glob->ranges = malloc((len + 1) * sizeof *glob->ranges);
  if (glob->nodes && glob->ranges) return glob;
  dml_glob_free(glob);
  return NULL;
}

/* Gives back what the pattern did not need; a realloc that fails leaves more than was asked for. */
static void shrink(dml_glob *glob, size_t range_count) {
  node *nodes = realloc(glob->nodes, glob->count * sizeof *nodes);
  if (nodes) glob->nodes = nodes;
  range *ranges = realloc(glob->ranges, (range_count + 1) * sizeof *ranges);
  if (ranges) glob->ranges = ranges;
}

dml_status dml_glob_new(const char *pattern, size_t len, bool is_path, dml_glob **out, char *why, size_t why_len) {
  parser p = {.pattern = pattern, .len = len, .why = why, .why_len = why_len};
  *out = NULL;
  bool is_good = false, is_at_component = true;
  if (len > DML_GLOB_BYTES_MAX) {
    fail(&p, "it is longer than 4096 bytes");
  } else if (!dml_utf8_is_valid(pattern, len)) {
    fail(&p, "it is not UTF-8");
  } else {
    p.glob = allocate(len, is_path);
    if (!p.glob) {
      fail(&p, "there is no memory for it");
      return DML_INTERNAL;
    }
    is_good = parse_sequence(&p, 0, &is_at_component);
  }
  if (!is_good) {
    dml_glob_free(p.glob);
    return DML_INVALID_ARGUMENT;
  }
  add(&p, NODE_END, 0);
  shrink(p.glob, p.range_count);
  *out = p.glob;
  return DML_OK;
}

void dml_glob_free(dml_glob *glob) {
  if (!glob) return;
  free(glob->nodes);
  free(glob->ranges);
  free(glob);
}

/* ---- matching ---- */

/* Live nodes, and the words among which all of them are. */
typedef struct live {
  uint64_t words[WORDS_MAX];
  size_t first, last;
} live;

static void mark(live *set, size_t index) {
  size_t word = index / 64;
  set->words[word] |= 1ULL << index % 64;
  if (word < set->first) set->first = word;
  if (word > set->last) set->last = word;
}

static void clear(live *set) {
  for (size_t i = set->first; i <= set->last; i++) set->words[i] = 0;
  set->first = WORDS_MAX;
  set->last = 0;
}

static bool is_in_set(const dml_glob *glob, const node *n, uint32_t c) {
  for (uint32_t i = 0; i < n->b; i++)
    if (c >= glob->ranges[n->a + i].low && c <= glob->ranges[n->a + i].high) return !n->is_negated;
  return n->is_negated;
}

/* What a live node leads to: without a character in `now`, by the character `c` in `next`. Returns whether the rest of the
 * subject matches whatever it is. */
static bool follow(const dml_glob *glob, size_t index, uint32_t c, live *now, live *next) {
  const node *n = &glob->nodes[index];
  bool is_barred = glob->is_path && c == '/';
  switch ((node_kind)n->kind) {
    case NODE_CHAR:
      if (c == n->a) mark(next, index + 1);
      break;
    case NODE_ONE:
      if (!is_barred) mark(next, index + 1);
      break;
    case NODE_SET:
      if (!is_barred && is_in_set(glob, n, c)) mark(next, index + 1);
      break;
    case NODE_RUN:
      mark(now, index + 1);
      if (!is_barred) mark(next, index);
      break;
    case NODE_DEEP:
      mark(now, index + 1);
      mark(next, index);
      return glob->nodes[index + 1].kind == NODE_END;
    case NODE_FORK:
      mark(now, index + 1);
      mark(now, n->a);
      break;
    case NODE_JUMP:
      mark(now, n->a);
      break;
    case NODE_END:
      break;
  }
  return false;
}

/* One sweep over the live nodes, upward; what is marked in `now` meanwhile lies ahead. Returns what follow does. */
static bool sweep(const dml_glob *glob, uint32_t c, live *now, live *next, long *work) {
  for (size_t word = now->first; word <= now->last; word++) {
    --*work;
    uint64_t todo = now->words[word];
    while (todo) {
      int bit = __builtin_ctzll(todo);
      size_t index = word * 64 + (size_t)bit;
      *work -= glob->nodes[index].kind == NODE_SET ? 1 + glob->nodes[index].b : 1;
      if (follow(glob, index, c, now, next)) return true;
      todo = bit == 63 ? 0 : now->words[word] & (~0ULL << (bit + 1));
    }
  }
  return false;
}

int dml_glob_match(const dml_glob *glob, const char *s, size_t len) {
  live sets[2];
  memset(sets[0].words, 0, (glob->count / 64 + 1) * sizeof(uint64_t));
  memset(sets[1].words, 0, (glob->count / 64 + 1) * sizeof(uint64_t));
  sets[0].first = sets[1].first = WORDS_MAX;
  sets[0].last = sets[1].last = 0;
  live *now = &sets[0], *next = &sets[1];
  long work = WORK_BASE + (long)len * WORK_A_BYTE;
  mark(now, 0);
  for (size_t place = 0; place < len;) {
    int step;
    uint32_t c = decode(s + place, len - place, &step);
    if (sweep(glob, c, now, next, &work)) return 1;
    if (next->first == WORDS_MAX) return 0;
    if (work < 0) return -1;
    place += (size_t)step;
    clear(now);
    live *spare = now;
    now = next;
    next = spare;
  }
  /* STRAY_BYTE alone is no character of any subject: only edges without a character lead on. */
  sweep(glob, STRAY_BYTE, now, next, &work);
  size_t end = glob->count - 1;
  return (int)(now->words[end / 64] >> end % 64 & 1);
}
