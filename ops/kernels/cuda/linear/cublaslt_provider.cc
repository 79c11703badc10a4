#include "ops/kernels/cuda/linear/cublaslt_provider.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/linear/cublaslt.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/cuda_libraries.h"

namespace weft::cuda {
namespace {

// The libraries of all devices; lives for ever, as the process's devices do.
struct OpenLibraries {
  Mutex mutex;
  std::map<const Device*, std::unique_ptr<BlasLt>> by_device ABSL_GUARDED_BY(mutex);
};

[[maybe_unused]] const bool is_the_library = SetBlasLtProvider(CublasLtOf);

}  // namespace

absl::StatusOr<BlasLt*> CublasLtOf(Device& device) {
  auto* const card = dynamic_cast<CudaDevice*>(&device);
  if (card == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuBLASLt runs on CUDA devices, not on ", device.info().name));
  }
  static auto* const libraries = new OpenLibraries;
  MutexLock lock(libraries->mutex);
  std::unique_ptr<BlasLt>& library = libraries->by_device[&device];
  if (library != nullptr) return library.get();
  WEFT_ASSIGN_OR_RETURN(const CudaLibrary* const file, FindCudaLibrary(CudaLibraryKind::kCublasLt));
  CublasLtOptions options;
  options.make_current = [card] { return card->MakeCurrent(); };
  const SymbolSource symbols = [file](const char* name) { return file->Symbol(name); };
  WEFT_ASSIGN_OR_RETURN(library, OpenCublasLt(symbols, std::move(options)));
  return library.get();
}

}  // namespace weft::cuda
