// Where factories find cuBLASLt: one for each card, opened when a product is first prepared for it.
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "ops/kernels/cuda/linear/cublaslt.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_libraries.h"
#include "tensor/cuda/cuda_runtime.h"

namespace weft::cuda {
namespace {

// Lives for ever. Thread-safe.
class LibraryOfCards {
 public:
  // The errors of FindCudaLibrary and OpenCublasLt; the next call tries anew.
  absl::StatusOr<BlasLt*> Find(int card) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    std::unique_ptr<BlasLt>& library = libraries_[card];
    if (library != nullptr) return library.get();
    WEFT_ASSIGN_OR_RETURN(const CudaLibrary* symbols, FindCudaLibrary(CudaLibraryKind::kCublasLt));
    WEFT_ASSIGN_OR_RETURN(CudaRuntime * runtime, SystemCudaRuntime());
    CublasLtOptions options;
    options.make_current = [runtime, card]() -> absl::Status {
      const CudaCode code = runtime->SetDevice(card);
      if (code == CudaCode::kSuccess) return absl::OkStatus();
      return absl::InternalError(absl::StrCat("cuda:", card, " cannot become the current device: ",
                                              runtime->ErrorText(code)));
    };
    WEFT_ASSIGN_OR_RETURN(
        library, OpenCublasLt([symbols](const char* name) { return symbols->Symbol(name); },
                              std::move(options)));
    return library.get();
  }

 private:
  Mutex mutex_;
  std::map<int, std::unique_ptr<BlasLt>> libraries_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<BlasLt*> CublasLtOf(Device& device) {
  static auto* const cards = new LibraryOfCards();
  return cards->Find(device.info().index);
}

[[maybe_unused]] const bool is_the_library = SetBlasLtProvider(CublasLtOf);

}  // namespace
}  // namespace weft::cuda
