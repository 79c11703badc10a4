// LibraryOpener: shared libraries that are opened while the program runs.
#ifndef WEFT_TENSOR_CUDA_LIBRARY_OPENER_H_
#define WEFT_TENSOR_CUDA_LIBRARY_OPENER_H_

#include <string>

#include "absl/status/statusor.h"

namespace weft {

// The system's loader, behind an interface for tests. Thread-safe. What was opened stays open.
class LibraryOpener {
 public:
  virtual ~LibraryOpener() = default;
  // Opens a file by its path, or a bare name as the loader finds it. NotFound with what the loader
  // says.
  virtual absl::StatusOr<void*> Open(const std::string& path) = 0;
  // Null where the library has no such symbol.
  virtual void* Symbol(void* library, const std::string& name) = 0;
  // The file of an open library; "" where it is not known.
  virtual std::string PathOf(void* library) = 0;
  virtual bool Exists(const std::string& path) = 0;
  // A variable of the environment; "" where it is not set.
  virtual std::string Environment(const std::string& name) = 0;
};

// dlopen and its like.
LibraryOpener& SystemLibraryOpener();

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_LIBRARY_OPENER_H_
