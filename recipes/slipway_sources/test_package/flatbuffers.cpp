#include <cstdio>

#include "point_generated.h"

// Writes a buffer, reads it back, and sees the verifier refuse it when it is cut short.
int main() {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(test_package::CreatePoint(builder, builder.CreateString("origin"), 7));
  flatbuffers::Verifier whole(builder.GetBufferPointer(), builder.GetSize());
  flatbuffers::Verifier cut(builder.GetBufferPointer(), builder.GetSize() - 8);
  const auto* point = test_package::GetPoint(builder.GetBufferPointer());
  const bool good = test_package::VerifyPointBuffer(whole) && !test_package::VerifyPointBuffer(cut) &&
                    point->x() == 7 && point->name()->str() == "origin";
  std::puts(good ? "flatbuffers: written, verified, read" : "flatbuffers: wrong");
  return good ? 0 : 1;
}
