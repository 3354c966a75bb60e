// A plugin for QEMU's emulated machines: counts the instructions that programs execute, and answers a program
// that asks.
//
// A program asks with an instruction that changes nothing on any processor and that no compiler writes (kAsk
// below). The plugin puts the count into the instruction's register. runtime/runner/instructions.cpp is the
// other side.
//
// Counted is what the asking process executed in user mode, with all of its threads and on all processors of
// the machine; what runs beside it is not in its count. A process is known by its page table: Linux writes
// the table's address into TTBR0 whenever it gives a processor to another process, and this plugin looks at
// each such write. Whole translated blocks are counted when they begin: a block that an exception leaves
// early counts in full.
//
// The declarations are those of QEMU's plugin interface, version 7 (QEMU's include/plugins/qemu-plugin.h):
// Debian's packages do not have the header.

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t PluginId;
typedef struct qemu_plugin_tb Block;
typedef struct qemu_plugin_insn Instruction;
typedef struct qemu_plugin_register Register;

typedef struct {
  const char* target_name;
  struct {
    int least;
    int current;
  } version;
  bool system_emulation;
} PluginInfo;

typedef struct {
  struct qemu_plugin_scoreboard* score;
  size_t offset;
} Counter;

typedef struct {
  Register* handle;
  const char* name;
  const char* feature;
  bool is_readonly;
} RegisterDescriptor;

// GLib's GArray and GByteArray.
typedef struct {
  char* data;
  unsigned len;
} Array;

enum { kReadRegisters = 1, kReadWriteRegisters = 2, kAdd = 0 };

typedef void (*VcpuCallback)(unsigned vcpu, void* data);
typedef void (*TranslatedCallback)(Block* block, void* data);

void qemu_plugin_register_vcpu_init_cb(PluginId id, VcpuCallback call, void* data);
void qemu_plugin_register_vcpu_tb_trans_cb(PluginId id, TranslatedCallback call, void* data);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(Block* block, int op, Counter counter, uint64_t value);
void qemu_plugin_register_vcpu_insn_exec_cb(Instruction* instruction, VcpuCallback call, int flags,
                                            void* data);
int qemu_plugin_num_vcpus(void);
size_t qemu_plugin_tb_n_insns(const Block* block);
uint64_t qemu_plugin_tb_vaddr(const Block* block);
Instruction* qemu_plugin_tb_get_insn(const Block* block, size_t index);
size_t qemu_plugin_insn_size(const Instruction* instruction);
size_t qemu_plugin_insn_data(const Instruction* instruction, void* data, size_t size);
Array* qemu_plugin_get_registers(void);
bool qemu_plugin_read_register(Register* handle, Array* bytes);
bool qemu_plugin_write_register(Register* handle, Array* bytes);
struct qemu_plugin_scoreboard* qemu_plugin_scoreboard_new(size_t element_size);
uint64_t qemu_plugin_u64_get(Counter counter, unsigned vcpu);
char* g_array_free(Array* array, int with_elements);
Array* g_byte_array_new(void);
char* g_byte_array_free(Array* array, int with_bytes);

EXPORT int qemu_plugin_version = 7;

// What differs between the two architectures.
typedef struct {
  const char* target;
  uint32_t ask;
  unsigned size;    // of a register, in bytes
  uint64_t kernel;  // Linux is at this address and above
  // Instructions that write TTBR0: bits under the mask, and where the register's number is.
  struct {
    uint32_t mask;
    uint32_t bits;
    unsigned shift;
    uint32_t numbers;
  } writes[2];
  uint64_t table;  // the bits of TTBR0 that are the page table's address
} Architecture;

static const Architecture kArchitectures[] = {
    {"aarch64",
     0xaa1f9400,  // orr x0, x0, xzr, lsl #37
     8,
     UINT64_C(1) << 63,
     {{0xffffffe0, 0xd5182000, 0, 31}},  // msr ttbr0_el1, xN
     UINT64_C(0xfffffffffffe)},
    {"arm",
     0xe3800700,  // orr r0, r0, #0, ror #14
     4,
     0xc0000000,
     // mcr p15, 0, rN, c2, c0, 0 and, where tables have entries of 64 bits, mcrr p15, 0, rN, rM, c2
     {{0xffff0fff, 0xee020f10, 12, 15}, {0xfff00fff, 0xec400f02, 12, 15}},
     0xffffffe0},
};

enum { kVcpus = 64, kAskers = 16, kRegisters = 31 };

static const Architecture* architecture;
static Counter executed;
static Register* registers[kRegisters];  // x0 to x30, or r0 to r15; the first register's handle is NULL
static bool has_registers;

// Under the lock: what runs on each processor since it had executed how much, and what the last processes
// that asked executed before.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  uint64_t table;
  uint64_t since;
} running[kVcpus];
static struct {
  uint64_t table;
  uint64_t executed;
} askers[kAskers];
static unsigned asked;

static void find_registers(unsigned vcpu, void* data) {
  (void)vcpu;
  (void)data;
  const char letter = architecture->size == 8 ? 'x' : 'r';
  Array* all = qemu_plugin_get_registers();
  const RegisterDescriptor* each = (const RegisterDescriptor*)all->data;
  for (unsigned i = 0; i < all->len; ++i) {
    const char* name = each[i].name;
    const size_t digits = strlen(name) - 1;
    if (name[0] != letter || digits < 1 || digits > 2 || strspn(name + 1, "0123456789") != digits) {
      continue;
    }
    const unsigned number = digits == 1 ? name[1] - '0' : 10 * (name[1] - '0') + name[2] - '0';
    if (number < kRegisters) {
      registers[number] = each[i].handle;
      has_registers = true;
    }
  }
  g_array_free(all, 1);
}

// The asker with a page table; kAskers where it did not ask.
static unsigned find(uint64_t table) {
  unsigned i = 0;
  while (i < kAskers && i < asked && askers[i].table != table) {
    ++i;
  }
  return i < asked ? i : kAskers;
}

// Before a write to TTBR0: the processor goes to another process.
static void switched(unsigned vcpu, void* data) {
  const uintptr_t number = (uintptr_t)data;
  uint64_t table = 0;
  if (vcpu >= kVcpus || !has_registers) {
    return;
  }
  if (number < kRegisters) {
    Array* bytes = g_byte_array_new();
    if (qemu_plugin_read_register(registers[number], bytes) && bytes->len == architecture->size) {
      memcpy(&table, bytes->data, architecture->size);
    }
    g_byte_array_free(bytes, 1);
  }
  table &= architecture->table;
  const uint64_t now = qemu_plugin_u64_get(executed, vcpu);
  pthread_mutex_lock(&lock);
  if (running[vcpu].table != table) {
    const unsigned before = find(running[vcpu].table);
    if (before < kAskers) {
      askers[before].executed += now - running[vcpu].since;
    }
    running[vcpu].table = table;
    running[vcpu].since = now;
  }
  pthread_mutex_unlock(&lock);
}

static void tell(unsigned vcpu, void* data) {
  (void)data;
  if (vcpu >= kVcpus || !has_registers) {
    return;
  }
  pthread_mutex_lock(&lock);
  const uint64_t table = running[vcpu].table;
  unsigned asker = find(table);
  if (asker == kAskers) {
    // The oldest makes room. Only differences of counts mean something, so this one may begin anywhere.
    asker = asked++ % kAskers;
    askers[asker].table = table;
    askers[asker].executed = 0;
  }
  uint64_t count = askers[asker].executed;
  for (unsigned i = 0; i < kVcpus && i < (unsigned)qemu_plugin_num_vcpus(); ++i) {
    if (running[i].table == table) {
      count += qemu_plugin_u64_get(executed, i) - running[i].since;
    }
  }
  pthread_mutex_unlock(&lock);
  Array bytes = {(char*)&count, architecture->size};
  qemu_plugin_write_register(registers[0], &bytes);
}

static void translated(Block* block, void* data) {
  (void)data;
  const bool kernel = qemu_plugin_tb_vaddr(block) >= architecture->kernel;
  const size_t count = qemu_plugin_tb_n_insns(block);
  if (!kernel) {
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, kAdd, executed, count);
  }
  for (size_t i = 0; i < count; ++i) {
    Instruction* instruction = qemu_plugin_tb_get_insn(block, i);
    uint32_t word = 0;
    if (qemu_plugin_insn_size(instruction) != sizeof word ||
        qemu_plugin_insn_data(instruction, &word, sizeof word) != sizeof word) {
      continue;
    }
    if (!kernel && word == architecture->ask) {
      qemu_plugin_register_vcpu_insn_exec_cb(instruction, tell, kReadWriteRegisters, NULL);
    }
    for (unsigned form = 0; kernel && form < 2; ++form) {
      const uint32_t mask = architecture->writes[form].mask;
      if (mask != 0 && (word & mask) == architecture->writes[form].bits) {
        const uintptr_t number =
            word >> architecture->writes[form].shift & architecture->writes[form].numbers;
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, switched, kReadRegisters, (void*)number);
      }
    }
  }
}

EXPORT int qemu_plugin_install(PluginId id, const PluginInfo* info, int argc, char** argv) {
  (void)argc;
  (void)argv;
  for (size_t i = 0; i < sizeof kArchitectures / sizeof kArchitectures[0]; ++i) {
    if (strcmp(info->target_name, kArchitectures[i].target) == 0) {
      architecture = &kArchitectures[i];
    }
  }
  if (architecture == NULL || !info->system_emulation) {
    return 1;
  }
  executed.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
  executed.offset = 0;
  qemu_plugin_register_vcpu_init_cb(id, find_registers, NULL);
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
  return 0;
}
