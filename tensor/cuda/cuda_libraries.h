// NVIDIA's libraries that are opened when they are first needed: a program starts without them.
#ifndef WEFT_TENSOR_CUDA_CUDA_LIBRARIES_H_
#define WEFT_TENSOR_CUDA_CUDA_LIBRARIES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensor/cuda/library_opener.h"

namespace weft {

enum class CudaLibraryKind : uint8_t { kCublasLt, kCudnn, kNccl, kNvrtc };

inline constexpr CudaLibraryKind kCudaLibraries[] = {
    CudaLibraryKind::kCublasLt, CudaLibraryKind::kCudnn, CudaLibraryKind::kNccl,
    CudaLibraryKind::kNvrtc};

// "cuBLASLt", "cuDNN", "NCCL", "NVRTC".
std::string_view CudaLibraryName(CudaLibraryKind kind);

// One of them, open, in a version that Weft works with. Its functions are got by name; tables of
// typed functions belong to who calls them:
//
//   WEFT_ASSIGN_OR_RETURN(const CudaLibrary* library,
//                         FindCudaLibrary(CudaLibraryKind::kCublasLt));
//   decltype(&cublasLtCreate) create = nullptr;
//   WEFT_RETURN_IF_ERROR(library->Bind("cublasLtCreate", &create));
//   if (const auto code = create(&handle); code != 0) return library->Refused("cublasLtCreate",
//   code);
//
// Immutable; borrows the opener.
class CudaLibrary {
 public:
  // Looks in the folders of WEFT_CUDA_LIBRARIES (with colons between them), where the loader looks,
  // in /usr/local/cuda/lib64 and in $CUDA_HOME/lib64, in this order, for newer names first. The
  // first that opens is taken. FailedPrecondition with names and folders where none does, and with
  // path, version and what is expected where its version does not fit.
  static absl::StatusOr<std::unique_ptr<CudaLibrary>> Open(CudaLibraryKind kind,
                                                           LibraryOpener& opener);

  CudaLibraryKind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  // "13.1.0".
  const std::string& version() const { return version_; }

  // FailedPrecondition with library, version and name where it has none.
  absl::StatusOr<void*> Symbol(const std::string& name) const;
  // The same, into a pointer to a function. REQUIRES: it is of the function's type.
  template <typename Function>
  absl::Status Bind(const std::string& name, Function** function) const {
    const absl::StatusOr<void*> symbol = Symbol(name);
    if (symbol.ok()) *function = reinterpret_cast<Function*>(*symbol);
    return symbol.status();
  }
  // What to say where a call of the library fails, with its own number and text: Internal.
  absl::Status Refused(std::string_view call, int64_t code, std::string_view text = "") const;

 private:
  CudaLibrary(CudaLibraryKind kind, LibraryOpener& opener, void* handle, std::string path)
      : kind_(kind), opener_(opener), handle_(handle), path_(std::move(path)) {}

  absl::Status ReadVersion();
  // "cuBLASLt 13.1.0 (/usr/lib/libcublasLt.so.13)".
  std::string Describe() const;

  const CudaLibraryKind kind_;
  LibraryOpener& opener_;
  void* const handle_;
  const std::string path_;
  std::string version_ = "of unknown version";
};

// The process's, opened by the first call. Lives for ever. An error is looked for anew by the next
// call. Thread-safe.
absl::StatusOr<const CudaLibrary*> FindCudaLibrary(CudaLibraryKind kind);

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_LIBRARIES_H_
