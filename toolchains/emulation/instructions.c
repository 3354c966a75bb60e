// A plugin for QEMU's emulated machines: counts the instructions that programs execute, and answers a program
// that asks.
//
// A program asks with an instruction that changes nothing on any processor and that no compiler writes (kAsk
// below). The plugin puts the count into the instruction's register. runtime/src/instructions.cpp is the
// other side.
//
// Counted is what runs in user mode, on all processors of the machine. Whole translated blocks are counted
// when they begin: a block that an exception leaves early counts in full.
//
// The declarations are those of QEMU's plugin interface, version 7 (QEMU's include/plugins/qemu-plugin.h):
// Debian's packages do not have the header.

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

enum { kReadWriteRegisters = 2, kAdd = 0 };

typedef void (*VcpuCallback)(unsigned vcpu, void* data);
typedef void (*TranslatedCallback)(Block* block, void* data);

void qemu_plugin_register_vcpu_init_cb(PluginId id, VcpuCallback call, void* data);
void qemu_plugin_register_vcpu_tb_trans_cb(PluginId id, TranslatedCallback call, void* data);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(Block* block, int op, Counter counter, uint64_t value);
void qemu_plugin_register_vcpu_insn_exec_cb(Instruction* instruction, VcpuCallback call, int flags,
                                            void* data);
size_t qemu_plugin_tb_n_insns(const Block* block);
uint64_t qemu_plugin_tb_vaddr(const Block* block);
Instruction* qemu_plugin_tb_get_insn(const Block* block, size_t index);
size_t qemu_plugin_insn_size(const Instruction* instruction);
size_t qemu_plugin_insn_data(const Instruction* instruction, void* data, size_t size);
Array* qemu_plugin_get_registers(void);
bool qemu_plugin_write_register(Register* handle, Array* bytes);
struct qemu_plugin_scoreboard* qemu_plugin_scoreboard_new(size_t element_size);
uint64_t qemu_plugin_u64_sum(Counter counter);
char* g_array_free(Array* array, int with_elements);

EXPORT int qemu_plugin_version = 7;

// What differs between the two architectures.
typedef struct {
  const char* target;
  uint32_t ask;
  const char* answer;    // the register
  unsigned answer_size;  // its bytes
  uint64_t kernel;       // Linux is at this address and above
} Architecture;

static const Architecture kArchitectures[] = {
    {"aarch64", 0xaa1f9400, "x0", 8, UINT64_C(1) << 63},  // orr x0, x0, xzr, lsl #37
    {"arm", 0xe3800700, "r0", 4, 0xc0000000},             // orr r0, r0, #0, ror #14
};

static const Architecture* architecture;
static Counter executed;
static Register* answer;  // the first register's handle is NULL
static bool answers;

static void find_register(unsigned vcpu, void* data) {
  (void)vcpu;
  (void)data;
  Array* all = qemu_plugin_get_registers();
  const RegisterDescriptor* each = (const RegisterDescriptor*)all->data;
  for (unsigned i = 0; i < all->len; ++i) {
    if (strcmp(each[i].name, architecture->answer) == 0) {
      answer = each[i].handle;
      answers = true;
    }
  }
  g_array_free(all, 1);
}

static void tell(unsigned vcpu, void* data) {
  (void)vcpu;
  (void)data;
  uint64_t count = qemu_plugin_u64_sum(executed);
  Array bytes = {(char*)&count, architecture->answer_size};
  if (answers) {
    qemu_plugin_write_register(answer, &bytes);
  }
}

static void translated(Block* block, void* data) {
  (void)data;
  if (qemu_plugin_tb_vaddr(block) >= architecture->kernel) {
    return;
  }
  const size_t count = qemu_plugin_tb_n_insns(block);
  qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, kAdd, executed, count);
  for (size_t i = 0; i < count; ++i) {
    Instruction* instruction = qemu_plugin_tb_get_insn(block, i);
    uint32_t word = 0;
    if (qemu_plugin_insn_size(instruction) == sizeof word &&
        qemu_plugin_insn_data(instruction, &word, sizeof word) == sizeof word && word == architecture->ask) {
      qemu_plugin_register_vcpu_insn_exec_cb(instruction, tell, kReadWriteRegisters, NULL);
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
  qemu_plugin_register_vcpu_init_cb(id, find_register, NULL);
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
  return 0;
}
