#!/usr/bin/env bash
# bash completes the options of the tools, files, and a command after "--"; with
# nbdkit's own completion, each parameter of the plugin.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

rc=/usr/share/bash-completion/bash_completion
[ -e "$rc" ] || lacks "needs $rc"
mkdir -p "$tmp/share/bash-completion" "$tmp/bin" "$tmp/files"
ln -s "$(cd "$srcdir/.." && pwd)/tools/completion" \
  "$tmp/share/bash-completion/completions"
for tool in cachewatch copy verify-cache; do
  ln -s "$(cd "$srcdir/.." && pwd)/tools/$tool" "$tmp/bin/nbdkit-$tool"
done
nbdkit=$(realpath "$(command -v "$NBDKIT")")
touch "$tmp/files/disk.img"
unset BASH_COMPLETION_USER_DIR XDG_DATA_DIRS

# gives KEYS LINE: the line, after a real bash was sent these keys: \t completes,
# \e* inserts all that is offered.
gives ()
{
  local line

  # To the beginning of the line, and let it be echoed.
  line=$(cd "$tmp/files" && printf '%b\x01echo \n' "$1" |
    HOME=$tmp INPUTRC=/dev/null LC_ALL=C TERM=dumb \
      PATH=$tmp/bin:${nbdkit%/*}:$PATH \
      XDG_DATA_HOME=$tmp/share limited bash --noprofile --rcfile "$rc" -i \
      2>"$tmp/log")
  [ "${line% }" = "$2" ] || fail "$1: $line"
}

gives 'nbdkit-cachewatch --inter\t' 'nbdkit-cachewatch --interval'
gives 'nbdkit-cachewatch --st\td\t' 'nbdkit-cachewatch --stats disk.img'
gives 'nbdkit-cachewatch --stats --pr\td\t' \
  'nbdkit-cachewatch --stats --prometheus disk.img'
gives 'nbdkit-copy --pr\td\t' 'nbdkit-copy --print disk.img'
gives 'nbdkit-copy a b -- --sync\t' 'nbdkit-copy a b -- --synchronous'
gives 'nbdkit-verify-cache --max\e*' \
  'nbdkit-verify-cache --max-pages --max-running'
gives 'nbdkit-verify-cache -- nbdkit-cachew\t' \
  'nbdkit-verify-cache -- nbdkit-cachewatch'

[ -e "${rc%/*}/completions/nbdkit" ] || exit 0
all=$(parameters | sed 's/$/=/' | LC_ALL=C sort | tr '\n' ' ')
gives 'nbdkit file \e*' "nbdkit file ${all% }"
