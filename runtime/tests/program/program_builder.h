// Small programs made on the spot, with the same schema that the engine reads them with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program_generated.h"

// A program with one method, forward(x) = x + (1, 2, ..., 6), float32 2x3, the addend a constant in a
// segment.
struct ProgramRecipe {
  std::string operator_name = "aten::add";
  std::string overload = "out";
  std::int32_t output_value = 3;
  std::uint32_t constant_index = 1;
  std::int32_t first_argument = 0;
  std::int64_t planned_bytes = 24;
  std::vector<std::uint8_t> dim_order = {0, 1};
  std::int8_t element_type = 6;      // of all tensors; the schema's number
  std::uint64_t segment_bytes = 24;  // as the program's table says; the file has 24
  std::size_t lists = 0;             // further values, lists that share one vector
  std::size_t items = 0;             // of so many items
};

// Writes so many bytes of a number, little-endian.
void put_number(std::vector<std::uint8_t>* file, std::size_t at, std::uint64_t value, std::size_t size);

std::vector<std::uint8_t> make_program(const ProgramRecipe& recipe = {});
