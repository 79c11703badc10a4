/* A library of another ABI version, in C. */
#include <stdint.h>

#include "ops/custom_op.h"

__attribute__((visibility("default"))) uint32_t weft_op_library_abi_version(void) {
  return WEFT_CUSTOM_OP_ABI_VERSION + 1;
}
__attribute__((visibility("default"))) const WeftOpLibrary* weft_op_library(void) { return 0; }
