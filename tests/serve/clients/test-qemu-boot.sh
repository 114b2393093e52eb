#!/usr/bin/env bash
# A virtual machine boots from the server, writes to it, and leaves the right
# bytes and no cached page.  Its boot sector reads 1 MiB of the disk by the BIOS
# and writes it elsewhere, and ends qemu with the result.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need qemu-system-x86_64 as ld cmp cachestats

disk=$tmp/disk
mib=1048576

as --32 -o "$tmp/boot.o" "$srcdir/serve/clients/boot.s" ||
  skip 'this assembler is not for x86'
ld -m elf_i386 -Ttext 0x7c00 --oformat binary -o "$tmp/boot" "$tmp/boot.o" ||
  fail 'the linker'
[ "$(stat -c %s "$tmp/boot")" = 512 ] || fail 'the boot sector has another size'
random_file "$tmp/data" $mib

for interface in ide virtio; do
  rm -f "$disk"
  truncate -s 16M "$disk"
  dd if="$tmp/boot" of="$disk" conv=notrunc status=none
  dd if="$tmp/data" of="$disk" bs=$mib seek=1 conv=notrunc status=none
  drop "$disk"
  start_nbdkit file "$disk" cache=none

  # The machine writes 0 to the device when all went well, which makes 1.
  status=0
  limited qemu-system-x86_64 -accel tcg -m 32 -nodefaults -no-user-config \
    -display none -no-reboot \
    -device isa-debug-exit,iobase=0xf4,iosize=1 \
    -drive "file=$uri,format=raw,if=$interface" >"$tmp/out" 2>&1 || status=$?
  [ "$status" = 1 ] ||
    fail "$interface: status $status; qemu: $(<"$tmp/out")"

  empty_soon "$disk" "$interface"
  stop_nbdkit
  cmp -n $mib -i $mib:0 "$disk" "$tmp/data" >&2 ||
    fail "$interface: the source has changed"
  cmp -n $mib -i $((8 * mib)):0 "$disk" "$tmp/data" >&2 ||
    fail "$interface: what was written is not what was read"
done
