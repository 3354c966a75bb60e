#include "program_info.h"

#include <algorithm>
#include <map>

#include "base/platform.h"

namespace slipway {
namespace {

bool is_real(DType dtype) {
  return dtype != DType::kUnknown && dtype != DType::kComplex64 && dtype != DType::kComplex128;
}

ValueSpec spec_of(const pte::EValue& value) {
  ValueSpec spec;
  if (const auto* tensor = value.val_as_Tensor()) {
    spec.dtype = to_dtype(tensor->scalar_type());
    // A type without a file form has no other place for its name.
    spec.kind = (spec.dtype == DType::kUnknown ? name_of(tensor->scalar_type()) + " " : "") + "tensor";
    spec.dynamism = dynamism_of(tensor->shape_dynamism());
    if (tensor->sizes() != nullptr) {
      spec.shape.assign(tensor->sizes()->begin(), tensor->sizes()->end());
    }
  } else if (const auto* integer = value.val_as_Int()) {
    spec.kind = "int";
    spec.exported = scalar<std::int64_t>(DType::kInt64, integer->int_val());
  } else if (const auto* real = value.val_as_Double()) {
    spec.kind = "double";
    spec.exported = scalar<double>(DType::kFloat64, real->double_val());
  } else if (const auto* flag = value.val_as_Bool()) {
    spec.kind = "bool";
    spec.exported = scalar<std::uint8_t>(DType::kBool, flag->bool_val() ? 1 : 0);
  } else if (value.val_type() == pte::KernelTypes::NONE || value.val_type() == pte::KernelTypes::Null) {
    spec.kind = "none";
    spec.exported.dtype = DType::kNone;
  } else {
    spec.kind = pte::EnumNameKernelTypes(value.val_type());
  }
  if (value.val_as_Tensor() == nullptr) {
    spec.dtype = spec.exported.dtype;
  }
  return spec;
}

std::vector<ValueSpec> specs_of(const pte::ExecutionPlan& plan,
                                const flatbuffers::Vector<std::int32_t>* indices) {
  std::vector<ValueSpec> specs;
  if (indices != nullptr) {
    for (const std::int32_t index : *indices) {
      specs.push_back(spec_of(*item_of(plan.values(), index)));
    }
  }
  return specs;
}

std::vector<std::string> listed(const std::set<std::string>& names) {
  return {names.begin(), names.end()};
}

std::set<std::string> external_weights(const pte::ExecutionPlan& plan) {
  std::set<std::string> names;
  for (const pte::EValue* value : *plan.values()) {
    const auto* tensor = value->val_as_Tensor();
    const auto* extra = tensor == nullptr ? nullptr : tensor->extra_tensor_info();
    if (extra != nullptr && extra->location() == pte::TensorDataLocation::EXTERNAL) {
      names.insert(extra->fully_qualified_name()->str());
    }
  }
  return names;
}

// Planned memory, and what inputs and outputs take for which none was planned.
std::uint64_t planned_bytes(const pte::ExecutionPlan& plan) {
  std::uint64_t all = 0;
  const auto add = [&all](std::uint64_t bytes) { all += std::min(bytes, UINT64_MAX - all); };
  for (std::size_t i = 1;
       plan.non_const_buffer_sizes() != nullptr && i < plan.non_const_buffer_sizes()->size(); ++i) {
    add(static_cast<std::uint64_t>(item_of(plan.non_const_buffer_sizes(), i)));
  }
  for (const auto* indices : {plan.inputs(), plan.outputs()}) {
    for (const std::int32_t index : *indices) {
      const auto* tensor = item_of(plan.values(), index)->val_as_Tensor();
      if (tensor != nullptr && tensor->allocation_info() == nullptr && tensor->data_buffer_idx() == 0) {
        add(tensor_bytes(*tensor));
      }
    }
  }
  return all;
}

}  // namespace

std::string registered_name(const pte::Operator& op) {
  std::string name = op.name()->str();
  if (op.overload() != nullptr && op.overload()->size() != 0) {
    name += "." + op.overload()->str();
  }
  return name;
}

std::set<std::string> operators_of_other_types(const pte::ExecutionPlan& plan) {
  // The types of tensors and of those in lists, by value.
  std::map<std::int32_t, std::string> others;
  const auto value = [&plan](std::int32_t index) { return item_of(plan.values(), index); };
  const auto look = [&](std::int32_t index, const auto* items) {
    for (const std::int32_t item : *items) {
      const auto found = others.find(item);
      if (found != others.end()) {
        others.emplace(index, found->second);
        return;
      }
    }
  };
  const auto count = static_cast<std::int32_t>(plan.values()->size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto* tensor = value(i)->val_as_Tensor();
    if (tensor != nullptr && !is_real(to_dtype(tensor->scalar_type()))) {
      others.emplace(i, name_of(tensor->scalar_type()));
    }
  }
  std::set<std::string> names;
  if (others.empty()) {
    return names;
  }
  for (std::int32_t i = 0; i < count; ++i) {
    if (const auto* tensors = value(i)->val_as_TensorList()) {
      look(i, tensors->items());
    } else if (const auto* optional = value(i)->val_as_OptionalTensorList()) {
      look(i, optional->items());
    }
  }
  const auto* instructions = plan.chains()->Get(0)->instructions();
  for (std::size_t at = 0; instructions != nullptr && at < instructions->size(); ++at) {
    const auto* call = item_of(instructions, at)->instr_args_as_KernelCall();
    for (std::size_t i = 0; call != nullptr && i < call->args()->size(); ++i) {
      const auto found = others.find(item_of(call->args(), i));
      if (found != others.end()) {
        const auto index = static_cast<flatbuffers::uoffset_t>(call->op_index());
        names.insert(registered_name(*plan.operators()->Get(index)) + " of " + found->second);
        break;
      }
    }
  }
  return names;
}

MethodInfo method_info(const pte::ExecutionPlan& plan) {
  MethodInfo method;
  method.name = plan.name()->str();
  method.inputs = specs_of(plan, plan.inputs());
  method.outputs = specs_of(plan, plan.outputs());
  method.planned_bytes = planned_bytes(plan);
  std::set<std::string> backends;
  if (plan.delegates() != nullptr) {
    for (const pte::BackendDelegate* delegate : *plan.delegates()) {
      backends.insert(delegate->id()->str());
    }
  }
  std::set<std::string> operators;
  if (plan.operators() != nullptr) {
    for (const pte::Operator* op : *plan.operators()) {
      operators.insert(registered_name(*op));
    }
  }
  method.backends = listed(backends);
  method.operators = listed(operators);
  method.other_types = listed(operators_of_other_types(plan));
  method.external_weights = listed(external_weights(plan));
  return method;
}

Result<ProgramInfo> read_program_info(const std::string& path) {
  SLIPWAY_TRY(const MappedFile file, MappedFile::open(path));
  SLIPWAY_TRY(const pte::Program* program, check_program(file.data(), file.size(), path));
  ProgramInfo info;
  info.size = file.size();
  info.version = program->version();
  for (const pte::ExecutionPlan* plan : *program->execution_plan()) {
    info.methods.push_back(method_info(*plan));
  }
  return info;
}

namespace {

struct Row {
  pte::ScalarType stored;
  DType dtype;
  std::size_t size;
  const char* name = nullptr;  // of a type that is none of ours
};

// Exporters write them, and the schema has them in a comment.
constexpr auto kComplexHalf = static_cast<pte::ScalarType>(8);
constexpr auto kComplexFloat = static_cast<pte::ScalarType>(9);
constexpr auto kComplexDouble = static_cast<pte::ScalarType>(10);

constexpr Row kRows[] = {
    {pte::ScalarType::BYTE, DType::kUInt8, 1},
    {pte::ScalarType::CHAR, DType::kInt8, 1},
    {pte::ScalarType::SHORT, DType::kInt16, 2},
    {pte::ScalarType::INT, DType::kInt32, 4},
    {pte::ScalarType::LONG, DType::kInt64, 8},
    {pte::ScalarType::HALF, DType::kFloat16, 2},
    {pte::ScalarType::FLOAT, DType::kFloat32, 4},
    {pte::ScalarType::DOUBLE, DType::kFloat64, 8},
    {pte::ScalarType::BOOL, DType::kBool, 1},
    {pte::ScalarType::BFLOAT16, DType::kBFloat16, 2},
    {pte::ScalarType::UINT16, DType::kUInt16, 2},
    {pte::ScalarType::UINT32, DType::kUInt32, 4},
    {pte::ScalarType::UINT64, DType::kUInt64, 8},
    {kComplexHalf, DType::kUnknown, 4, "complex32"},
    {kComplexFloat, DType::kComplex64, 8},
    {kComplexDouble, DType::kComplex128, 16},
    {pte::ScalarType::QINT8, DType::kUnknown, 1, "qint8"},
    {pte::ScalarType::QUINT8, DType::kUnknown, 1, "quint8"},
    {pte::ScalarType::QINT32, DType::kUnknown, 4, "qint32"},
    {pte::ScalarType::QUINT4X2, DType::kUnknown, 1, "quint4x2"},
    {pte::ScalarType::QUINT2X4, DType::kUnknown, 1, "quint2x4"},
    {pte::ScalarType::BITS16, DType::kUnknown, 2, "bits16"},
    {pte::ScalarType::FLOAT8E5M2, DType::kUnknown, 1, "float8_e5m2"},
    {pte::ScalarType::FLOAT8E4M3FN, DType::kUnknown, 1, "float8_e4m3fn"},
    {pte::ScalarType::FLOAT8E5M2FNUZ, DType::kUnknown, 1, "float8_e5m2fnuz"},
    {pte::ScalarType::FLOAT8E4M3FNUZ, DType::kUnknown, 1, "float8_e4m3fnuz"},
};

const Row* find(pte::ScalarType type) {
  for (const Row& row : kRows) {
    if (row.stored == type) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

DType to_dtype(pte::ScalarType type) {
  const Row* row = find(type);
  return row == nullptr ? DType::kUnknown : row->dtype;
}

pte::ScalarType to_stored(DType dtype) {
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows),
                                [dtype](const Row& candidate) { return candidate.dtype == dtype; });
  return row == std::end(kRows) ? kComplexHalf : row->stored;
}

std::size_t element_size(pte::ScalarType type) {
  const Row* row = find(type);
  return row == nullptr ? 0 : row->size;
}

std::string name_of(pte::ScalarType type) {
  const Row* row = find(type);
  return row == nullptr ? "unknown" : row->name == nullptr ? slipway::name_of(row->dtype) : row->name;
}

Dynamism dynamism_of(pte::TensorShapeDynamism dynamism) {
  static_assert(static_cast<int>(pte::TensorShapeDynamism::DYNAMIC_UNBOUND) ==
                static_cast<int>(Dynamism::kUnbounded));
  return static_cast<Dynamism>(dynamism);
}

std::uint64_t tensor_bytes(const pte::Tensor& tensor) {
  std::uint64_t bytes = element_size(tensor.scalar_type());
  for (std::size_t i = 0; tensor.sizes() != nullptr && i < tensor.sizes()->size(); ++i) {
    bytes *= static_cast<std::uint64_t>(item_of(tensor.sizes(), i));
  }
  return bytes;
}

}  // namespace slipway
