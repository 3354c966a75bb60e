// Starts a Linux kernel that already lies in memory, uncompressed (deploy/virtual/pc.py puts it there with Bochs'
// optramimage): no boot loader reads a disk, no emulated processor unpacks a kernel, which took 40 seconds of a start.
// The BIOS calls this ROM when its own tables are ready. Linux' 64-bit boot protocol: long mode, all memory mapped to
// itself, interrupts off, code selector 0x10, data selector 0x18, RSI = the boot parameters.
#define ROM 0xd0000
#define PARAMETERS 0x8000000
#define PAGES 0x8001000
#define KERNEL 0x1000000

  .code16
rom:
  .byte 0x55, 0xaa, 1       // a ROM of one block of 512 bytes; its entry is the fourth byte
  cli
  cld
  inb $0x92, %al            // address line 20 on
  orb $2, %al
  outb %al, $0x92
  lgdtl %cs:(table_pointer - rom)
  movl %cr0, %eax
  orb $1, %al               // protected mode
  movl %eax, %cr0
  ljmpl $0x08, $(protected - rom + ROM)

  .code32
protected:
  movl $0x18, %eax
  movl %eax, %ds
  movl %eax, %es
  movl %eax, %ss
  movl %cr4, %eax
  orl $0x20, %eax           // pages with 64-bit entries
  movl %eax, %cr4
  movl $PAGES, %eax
  movl %eax, %cr3
  movl $0xc0000080, %ecx    // EFER
  rdmsr
  orl $0x100, %eax          // long mode
  wrmsr
  movl %cr0, %eax
  orl $0x80000000, %eax     // paging
  movl %eax, %cr0
  ljmpl $0x10, $(long_mode - rom + ROM)

  .code64
long_mode:
  movl $PARAMETERS, %esi
  movl $KERNEL, %eax
  jmpq *%rax

  .balign 8
table:
  .quad 0
  .quad 0x00cf9b000000ffff  // 0x08: 32-bit code
  .quad 0x00af9b000000ffff  // 0x10: 64-bit code
  .quad 0x00cf93000000ffff  // 0x18: data
table_pointer:
  .word table_pointer - table - 1
  .long table - rom + ROM
  .org 511
  .byte 0                   // makes the sum of all bytes 0; bochs.py writes it
