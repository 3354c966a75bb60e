// Writes small .onnx files for tests: messages field by field, as onnx.proto numbers them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// One message of the wire format, from front to back.
class Message {
 public:
  Message& number(unsigned field, std::uint64_t value);
  Message& text(unsigned field, const std::string& value);
  Message& message(unsigned field, const Message& value) { return text(field, value.bytes()); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value);

  std::string bytes_;
};

struct NodeRecipe {
  std::string op;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::string name;
  std::string domain;
};

// A float tensor of the graph; a dimension below zero is not fixed, and has this name.
Message value(const std::string& name, const std::vector<std::int64_t>& shape, const char* open = "N");
// A float initializer filled with one number.
Message constant(const std::string& name, const std::vector<std::int64_t>& shape, float fill);

struct ModelRecipe {
  std::vector<NodeRecipe> nodes;
  std::vector<Message> inputs;
  std::vector<Message> outputs;
  std::vector<Message> constants;
  std::vector<Message> values;
  std::uint64_t opset = 17;
  std::uint64_t ir_version = 8;
};

std::string make_model(const ModelRecipe& recipe);

// y = Relu(Conv(x, ones) + 0.5) -> Flatten, x of 1x1x4x4: Conv and Relu are XNNPACK's, Flatten is not.
ModelRecipe conv_model();
