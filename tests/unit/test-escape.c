/* An escaped name has nothing but printable UTF-8, and different names stay
 * different.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include "escape.h"

static const char *const printable[] = {
  "",
  "disk 1.img",
  "~\"'<>&",
  "\u00a0\u00e4\u07ff\u0800\u200a\u2027\u202f\u205f\u2070\u20ac",
  "\ud7ff\ue000\uffff\U00010000\U0010ffff",
};

static const struct {
  const char *name, *escaped;
} others[] = {
  { "\\", "\\\\" },
  { "\\x1b", "\\\\x1b" },
  /* Controls; a terminal may take U+009B for ESC [. */
  { "\x1b[2J", "\\x1b[2J" },
  { "a\nb\tc\x01\x1f", "a\\x0ab\\x09c\\x01\\x1f" },
  { "\x7f", "\\x7f" },
  { "\xc2\x80\xc2\x9b\xc2\x9f", "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f" },
  /* A line separator and a right-to-left override. */
  { "\u2028\u202e", "\\xe2\\x80\\xa8\\xe2\\x80\\xae" },
  { "\u061c\ufeff", "\\xd8\\x9c\\xef\\xbb\\xbf" },
  /* Invisible characters: the first and the last of two ranges. */
  { "\u200b\u200f", "\\xe2\\x80\\x8b\\xe2\\x80\\x8f" },
  { "\u2060\u206f", "\\xe2\\x81\\xa0\\xe2\\x81\\xaf" },
  { "\xff\x80", "\\xff\\x80" },
  /* Cut off, at the end and before something else. */
  { "\xc3", "\\xc3" },
  { "\xe2\x82", "\\xe2\\x82" },
  { "\xf0\x9f\x92x", "\\xf0\\x9f\\x92x" },
  /* Overlong forms of '/', U+07FF and U+FFFF. */
  { "\xc0\xaf", "\\xc0\\xaf" },
  { "\xe0\x9f\xbf", "\\xe0\\x9f\\xbf" },
  { "\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf" },
  /* The first and the last surrogate, and beyond U+10FFFF. */
  { "\xed\xa0\x80", "\\xed\\xa0\\x80" },
  { "\xed\xbf\xbf", "\\xed\\xbf\\xbf" },
  { "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },
  { "\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80" },
};

static void
check (const char *name, const char *expected)
{
  char *got = escape_name (name);

  assert_string_equal (got, expected);
  free (got);
}

static void
names_are_escaped (void **state)
{
  size_t i;

  for (i = 0; i < COUNT (printable); i++)
    check (printable[i], printable[i]);
  for (i = 0; i < COUNT (others); i++)
    check (others[i].name, others[i].escaped);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (names_are_escaped),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
