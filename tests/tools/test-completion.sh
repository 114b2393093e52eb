#!/usr/bin/env bash
# bash completes the parameters of the file plugin with their values, and
# everything else as the distribution's completion of nbdkit does.  The two
# tools have completion of their options, of files and of a command after "--".
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# The tested shell expands the strings in single quotes.
# shellcheck disable=SC2016

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

system=/usr/share/bash-completion
for file in "$system/bash_completion" "$system/completions/nbdkit"; do
  [ -e "$file" ] || lacks "needs $file"
done

ours=$tmp/share/bash-completion/completions
mkdir -p "$ours" "$tmp/files/folder"
touch "$tmp/files/disk.img"
cp "$srcdir/../tools/completion"/* "$ours"
mkdir "$tmp/bin"
for tool in cachewatch verify-cache; do
  ln -s "$(cd "$srcdir/.." && pwd)/tools/$tool" "$tmp/bin/nbdkit-$tool"
done
PATH=$(cd "$(dirname "$(command -v "$NBDKIT")")" && pwd):$tmp/bin:$PATH
breaks='"$COMP_WORDBREAKS"'
unset BASH_COMPLETION_USER_DIR XDG_DATA_DIRS

# completed KEYS: the line, after a real bash was sent these keys.
completed ()
{
  {
    echo "COMP_WORDBREAKS=$breaks"
    # To the beginning of the line, and let it be echoed.
    printf '%b\x01echo \n' "$1"
  } | (
    cd "$tmp/files"
    HOME=$tmp INPUTRC=/dev/null LC_ALL=C TERM=dumb limited bash --noprofile \
      --rcfile "$system/bash_completion" -i 2>"$tmp/log"
  )
}

# gives KEYS LINE: \t completes, \e* inserts all that is offered.
gives ()
{
  local line

  line=$(XDG_DATA_HOME=$tmp/share completed "$1")
  [ "${line% }" = "$2" ] || fail "$1: $line"
}

# as_before KEYS: as without ours, and something.
as_before ()
{
  local line

  line=$(XDG_DATA_HOME=$tmp/none completed "$1")
  [ "$line" != "${1%\\*}" ] || fail "$1: completes nothing without ours"
  gives "$1" "${line% }"
}

gives 'nbdkit file cache=\e*' 'nbdkit file cache=default none preserve'
gives 'nbdkit file cache=n\t' 'nbdkit file cache=none'
gives 'nbdkit -r windowed-file cach\t=p\t' \
  'nbdkit -r windowed-file cache=preserve'
gives 'nbdkit file disk.img cache=p\t' 'nbdkit file disk.img cache=preserve'
gives 'nbdkit -r -U - file cach\t=p\t' 'nbdkit -r -U - file cache=preserve'
gives 'nbdkit -p 10809 --filter cow file cach\t=p\t' \
  'nbdkit -p 10809 --filter cow file cache=preserve'
gives 'nbdkit file cache\e*' \
  'nbdkit file cache-limit= cache-window-size= cache-windows= cache='
gives 'nbdkit file sy\tr\t' 'nbdkit file symlinks=refuse'
gives 'nbdkit file fadvise=\e*' 'nbdkit file fadvise=normal random sequential'
gives 'nbdkit file reduce\tf\t' 'nbdkit file reduce-memory-pressure=false'
gives 'nbdkit file directory=\t' 'nbdkit file directory=folder/'
gives 'nbdkit file file=d\t' 'nbdkit file file=disk.img'
gives 'nbdkit file dis\t' 'nbdkit file disk.img'
gives 'nbdkit file stats=d\t' 'nbdkit file stats=disk.img'
gives 'nbdkit file stats-i\t' 'nbdkit file stats-interval='
gives 'nbdkit file cache-windows=\e*' 'nbdkit file cache-windows='

breaks='"${COMP_WORDBREAKS//=}"'
gives 'nbdkit file cache=n\t' 'nbdkit file cache=none'
breaks='"$COMP_WORDBREAKS"'

as_before 'nbdkit mem\t'
as_before 'nbdkit fi\t'
as_before 'nbdkit --dump-c\t'
as_before 'nbdkit --filter cac\e*'
as_before 'nbdkit --filter=cac\e*'
as_before 'nbdkit --tls=\e*'
as_before 'nbdkit file --tls \e*'
as_before 'nbdkit memory si\t'
as_before 'nbdkit memory \e*'
as_before 'nbdkit memory dis\t'

gives 'nbdkit-cachewatch --inter\t' 'nbdkit-cachewatch --interval'
gives 'nbdkit-cachewatch --st\td\t' 'nbdkit-cachewatch --stats disk.img'
gives 'nbdkit-cachewatch --once d\t' 'nbdkit-cachewatch --once disk.img'
gives 'nbdkit-cachewatch --plot d\t' 'nbdkit-cachewatch --plot disk.img'
gives 'nbdkit-verify-cache --wh\t' 'nbdkit-verify-cache --which'
gives 'nbdkit-verify-cache --max\e*' \
  'nbdkit-verify-cache --max-pages --max-running'
gives 'nbdkit-verify-cache --file d\t' 'nbdkit-verify-cache --file disk.img'
gives 'nbdkit-verify-cache -- nbdkit-cachew\t' \
  'nbdkit-verify-cache -- nbdkit-cachewatch'
gives 'nbdkit-verify-cache -- nbdkit file cache=n\t' \
  'nbdkit-verify-cache -- nbdkit file cache=none'
