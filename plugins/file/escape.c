/* File and export names in messages.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

static unsigned
utf8_length (unsigned char first)
{
  if (first < 0x80)
    return 1;
  if (first < 0xc2 || first > 0xf4)
    return 0;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Decode the UTF-8 character that the string begins with into *code.  Returns
 * its length in bytes, or 0 if the bytes are not valid UTF-8.
 */
static unsigned
utf8_decode (const char *s, uint32_t *code)
{
  static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
  const unsigned char *p = (const unsigned char *) s;
  const unsigned n = utf8_length (*p);
  uint32_t c = n > 1 ? *p & (0x7f >> n) : *p;
  unsigned i;

  for (i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80)
      return 0;
    c = c << 6 | (p[i] & 0x3f);
  }
  /* Overlong forms, surrogates and what is beyond Unicode. */
  if (c < least[n] || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff)
    return 0;
  *code = c;
  return n;
}

/* Return whether a terminal shows the character where it stands.  False for
 * control characters, line separators and marks that change the direction of
 * text.
 */
static bool
is_printable (uint32_t c)
{
  return c >= 0x20 && !(c >= 0x7f && c <= 0x9f) &&
         !(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e) &&
         !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff && c != 0x61c;
}

char *
escape_name (const char *name)
{
  char *escaped = malloc (strlen ("\\xNN") * strlen (name) + 1);
  char *to = escaped;
  uint32_t c;

  if (escaped == NULL)
    return NULL;
  while (*name) {
    unsigned n = utf8_decode (name, &c);

    if (n == 0 || !is_printable (c)) {
      n = n ? n : 1;
      while (n-- > 0)
        to += sprintf (to, "\\x%02x", (unsigned char) *name++);
      continue;
    }
    if (*name == '\\')
      *to++ = '\\';
    memcpy (to, name, n);
    to += n;
    name += n;
  }
  *to = '\0';
  return escaped;
}
