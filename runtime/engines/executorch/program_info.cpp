#include "program_info.h"

#include <executorch/extension/module/module.h>

#include <algorithm>
#include <set>

#include "scalar_types.h"

namespace slipway {
namespace {

using executorch::extension::Module;
using executorch::runtime::MethodMeta;
template <typename T>
using EtResult = executorch::runtime::Result<T>;
using executorch::runtime::Tag;


ValueSpec spec_of(const EtResult<Tag>& tag, const EtResult<executorch::runtime::TensorInfo>& tensor) {
  ValueSpec spec;
  spec.kind = "unsupported";
  if (tag.ok() && tag.get() == Tag::Tensor && tensor.ok()) {
    spec.kind = "tensor";
    spec.dtype = to_dtype(tensor->scalar_type());
    for (const auto dim : tensor->sizes()) {
      spec.shape.push_back(dim);
    }
    spec.dynamism = Dynamism::kBounded;
  }
  return spec;
}

}  // namespace

Result<ProgramInfo> read_program_info(const std::string& path) {
  const auto fail = [&](const char* what) {
    return Status(Code::kFile, path + " " + what + ".", "export or copy it again", {path});
  };
  Module module(path, Module::LoadMode::Mmap);
  const EtResult<std::unordered_set<std::string>> names = module.method_names();
  if (!names.ok()) {
    return fail("is not a program");
  }
  ProgramInfo info;
  for (const std::string& name : names.get()) {
    const EtResult<MethodMeta> meta = module.method_meta(name);
    if (!meta.ok()) {
      return fail("has a method that cannot be read");
    }
    MethodInfo method;
    method.name = name;
    for (std::size_t i = 0; i < meta->num_inputs(); ++i) {
      method.inputs.push_back(spec_of(meta->input_tag(i), meta->input_tensor_meta(i)));
    }
    for (std::size_t i = 0; i < meta->num_outputs(); ++i) {
      method.outputs.push_back(spec_of(meta->output_tag(i), meta->output_tensor_meta(i)));
    }
    std::set<std::string> backends;
    for (std::size_t i = 0; i < meta->num_backends(); ++i) {
      backends.insert(meta->get_backend_name(i).get());
    }
    method.backends.assign(backends.begin(), backends.end());
    info.methods.push_back(std::move(method));
  }
  return info;
}

}  // namespace slipway
