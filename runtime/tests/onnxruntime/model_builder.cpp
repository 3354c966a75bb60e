#include "model_builder.h"

#include <cstring>

void Message::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    bytes_.push_back(static_cast<char>(0x80 | (value & 0x7F)));
  }
  bytes_.push_back(static_cast<char>(value));
}

Message& Message::number(unsigned field, std::uint64_t value) {
  varint(std::uint64_t{field} << 3);
  varint(value);
  return *this;
}

Message& Message::text(unsigned field, const std::string& value) {
  varint(std::uint64_t{field} << 3 | 2);
  varint(value.size());
  bytes_ += value;
  return *this;
}

Message value(const std::string& name, const std::vector<std::int64_t>& shape, const char* open) {
  Message dimensions;
  for (const std::int64_t size : shape) {
    dimensions.message(
        1, size < 0 ? Message().text(2, open) : Message().number(1, static_cast<std::uint64_t>(size)));
  }
  const Message tensor = Message().number(1, 1).message(2, dimensions);
  return Message().text(1, name).message(2, Message().message(1, tensor));
}

Message constant(const std::string& name, const std::vector<std::int64_t>& shape, float fill) {
  Message tensor;
  std::size_t count = 1;
  for (const std::int64_t size : shape) {
    tensor.number(1, static_cast<std::uint64_t>(size));
    count *= static_cast<std::size_t>(size);
  }
  std::string data(count * sizeof(fill), '\0');
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&data[i * sizeof(fill)], &fill, sizeof(fill));
  }
  return tensor.number(2, 1).text(8, name).text(9, data);
}

std::string make_model(const ModelRecipe& recipe) {
  Message graph;
  for (const NodeRecipe& node : recipe.nodes) {
    Message message;
    for (const std::string& name : node.inputs) {
      message.text(1, name);
    }
    for (const std::string& name : node.outputs) {
      message.text(2, name);
    }
    message.text(3, node.name).text(4, node.op);
    graph.message(1, message.text(7, node.domain));
  }
  graph.text(2, "test");
  const auto add = [&](unsigned field, const std::vector<Message>& messages) {
    for (const Message& message : messages) {
      graph.message(field, message);
    }
  };
  add(5, recipe.constants);
  add(11, recipe.inputs);
  add(12, recipe.outputs);
  add(13, recipe.values);
  // The graph last: a file that is cut short lacks nothing else, and only its end tells.
  return Message()
      .number(1, recipe.ir_version)
      .message(8, Message().text(1, "").number(2, recipe.opset))
      .message(7, graph)
      .bytes();
}

ModelRecipe conv_model() {
  ModelRecipe recipe;
  recipe.nodes = {{"Conv", {"x", "w", "b"}, {"c"}, "conv", ""},
                  {"Relu", {"c"}, {"r"}, "relu", ""},
                  {"Flatten", {"r"}, {"y"}, "flat", ""}};
  recipe.constants = {constant("w", {2, 1, 3, 3}, 1), constant("b", {2}, 0.5F)};
  recipe.inputs = {value("x", {1, 1, 4, 4})};
  recipe.outputs = {value("y", {1, 8})};
  return recipe;
}
