// Arbitrary bytes as a data file of any format.
#include <cstddef>
#include <cstdint>

#include "training/data/testing/exercise_column.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::testing::ExerciseColumn({reinterpret_cast<const char*>(data), size});
  return 0;
}
