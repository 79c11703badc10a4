// The helper of op libraries for tests, whose own programs cannot be one.
#include <cstdlib>

#include "ops/custom/isolation/op_helper.h"

int main(int argc, char** argv) {
  return weft::IsOpHelper(argc, argv) ? weft::RunOpHelper(argv) : EXIT_FAILURE;
}
