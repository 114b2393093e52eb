# A boot sector that copies 1 MiB of its disk, from sector 2048 to sector 16384,
# in pieces of 64 sectors, by the BIOS's INT 13h.  It then writes 0, or 1 if that
# failed, to isa-debug-exit at 0xf4.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

        .code16
        .globl  _start
_start:
        cli
        xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %ss
        movw    $0x7c00, %sp
        sti
        cld
        movb    %dl, drive              # which the BIOS has booted from
        movw    $32, %bp                # pieces

next:
        movl    $2048, %eax
        movb    $0x42, %ch              # read
        call    transfer
        jc      failed
        movl    $16384, %eax
        movb    $0x43, %ch              # write
        call    transfer
        jc      failed
        addl    $64, done
        decw    %bp
        jnz     next

        xorb    %al, %al
        jmp     finish
failed:
        movb    $1, %al
finish:                                 # with status 2 * %al + 1
        outb    %al, $0xf4
        hlt

# Function %ch of the BIOS for 64 sectors, from sector %eax + done.
transfer:
        addl    done, %eax
        movl    %eax, sector
        movb    %ch, %ah
        xorb    %al, %al
        movb    drive, %dl
        movw    $packet, %si
        int     $0x13
        ret

        .balign 4
packet: .byte   16, 0
        .word   64                      # sectors
        .word   0, 0x1000               # offset and segment in memory
sector: .long   0, 0
done:   .long   0
drive:  .byte   0

        .org    510
        .word   0xaa55
