/* An escaped name has nothing but printable UTF-8, and different names stay
 * different.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "escape.h"

static void
check (const char *name, const char *expected)
{
  char *got = escape_name (name);

  assert_non_null (got);
  assert_string_equal (got, expected);
  free (got);
}

static void
keeps_printable_names (void **state)
{
  check ("", "");
  check ("disk 1.img", "disk 1.img");
  check ("~\"'<>&", "~\"'<>&");
  check ("\u00a0\u00e4\u07ff\u0800\u200a\u2027\u20ac\uffff",
         "\u00a0\u00e4\u07ff\u0800\u200a\u2027\u20ac\uffff");
  check ("\U00010000\U0010ffff", "\U00010000\U0010ffff");
}

static void
doubles_backslashes (void **state)
{
  check ("\\", "\\\\");
  check ("\\x1b", "\\\\x1b");
}

static void
escapes_controls (void **state)
{
  check ("\x1b[2J", "\\x1b[2J");
  check ("a\nb\tc\x01\x1f", "a\\x0ab\\x09c\\x01\\x1f");
  check ("\x7f", "\\x7f");
  /* C1: a terminal may take U+009B for ESC [. */
  check ("\xc2\x80\xc2\x9b\xc2\x9f", "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f");
  /* A line separator and a right-to-left override. */
  check ("\u2028\u202e", "\\xe2\\x80\\xa8\\xe2\\x80\\xae");
}

static void
escapes_invalid_utf8 (void **state)
{
  check ("\xff", "\\xff");
  check ("\x80", "\\x80");
  /* Cut off, at the end and before something else. */
  check ("\xc3", "\\xc3");
  check ("\xe2\x82", "\\xe2\\x82");
  check ("\xf0\x9f\x92x", "\\xf0\\x9f\\x92x");
  /* Overlong forms of '/', U+07FF and U+FFFF. */
  check ("\xc0\xaf", "\\xc0\\xaf");
  check ("\xe0\x9f\xbf", "\\xe0\\x9f\\xbf");
  check ("\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf");
  /* A surrogate, and beyond U+10FFFF. */
  check ("\xed\xa0\x80", "\\xed\\xa0\\x80");
  check ("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
  check ("\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80");
}

/* Undo escape_name, in place. */
static void
unescape (char *s)
{
  char *to = s, hex[3] = "";

  for (; *s; s++) {
    if (s[0] == '\\' && s[1] == 'x') {
      memcpy (hex, s + 2, 2);
      *to++ = (char) strtoul (hex, NULL, 16);
      s += 3;
    }
    else
      *to++ = *s == '\\' ? *++s : *s;
  }
  *to = '\0';
}

static void
check_pair (unsigned char a, unsigned char b)
{
  const char name[] = { (char) a, (char) b, '\0' };
  char *escaped = escape_name (name);
  const char *p;
  uint32_t c;
  unsigned n;

  assert_non_null (escaped);
  for (p = escaped; *p; p += n) {
    n = utf8_decode (p, &c);
    assert_int_not_equal (n, 0);
    assert_true (is_printable (c));
  }
  unescape (escaped);
  assert_string_equal (escaped, name);
  free (escaped);
}

static void
all_pairs_of_bytes_can_be_read_back (void **state)
{
  unsigned a, b;

  for (a = 1; a < 256; a++) {
    for (b = 1; b < 256; b++)
      check_pair (a, b);
  }
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (keeps_printable_names),
    cmocka_unit_test (doubles_backslashes),
    cmocka_unit_test (escapes_controls),
    cmocka_unit_test (escapes_invalid_utf8),
    cmocka_unit_test (all_pairs_of_bytes_can_be_read_back),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
