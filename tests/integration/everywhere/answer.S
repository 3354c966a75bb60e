// int answer(void): assembly goes through the C preprocessor, and names are as the system has them.
#if defined(__APPLE__) || (defined(_WIN32) && defined(__i386__))
#define NAME _answer
#else
#define NAME answer
#endif
.text
.globl NAME
#if defined(__ELF__)
.type NAME, %function
#endif
.balign 4
NAME:
#if defined(__i386__) || defined(__x86_64__)
  movl $42, %eax
  ret
#elif defined(__aarch64__)
  mov w0, #42
  ret
#else
  mov r0, #42
  bx lr
#endif
#if defined(__ELF__)
.section .note.GNU-stack, "", %progbits
#endif
