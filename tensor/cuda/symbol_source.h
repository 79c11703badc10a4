// How typed tables of a library's functions are filled, with its real functions or with those of a
// test.
#ifndef WEFT_TENSOR_CUDA_SYMBOL_SOURCE_H_
#define WEFT_TENSOR_CUDA_SYMBOL_SOURCE_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// The address of a function of a library, by name; an error that names library and function.
using SymbolSource = std::function<absl::StatusOr<void*>(const char* name)>;

// Into a pointer to a function. REQUIRES: it is of the function's type.
template <typename Function>
absl::Status BindSymbol(const SymbolSource& symbols, const char* name, Function*& function) {
  const absl::StatusOr<void*> address = symbols(name);
  if (address.ok()) function = reinterpret_cast<Function*>(*address);
  return address.status();
}

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_SYMBOL_SOURCE_H_
