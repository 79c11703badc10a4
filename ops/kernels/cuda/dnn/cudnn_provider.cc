#include "ops/kernels/cuda/dnn/cudnn_provider.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/dnn/cudnn_library.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/cuda_libraries.h"

namespace weft::cuda {
namespace {

// The libraries of all devices; lives for ever, as the process's devices do.
struct OpenDnns {
  Mutex mutex;
  std::map<const Device*, std::unique_ptr<Dnn>> by_device ABSL_GUARDED_BY(mutex);
};

[[maybe_unused]] const bool is_the_dnn = SetDnnProvider(CudnnOf);

}  // namespace

absl::StatusOr<Dnn*> CudnnOf(Device& device) {
  auto* const card = dynamic_cast<CudaDevice*>(&device);
  if (card == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuDNN runs on CUDA devices, not on ", device.info().name));
  }
  static auto* const dnns = new OpenDnns;
  MutexLock lock(dnns->mutex);
  std::unique_ptr<Dnn>& library = dnns->by_device[&device];
  if (library != nullptr) return library.get();
  WEFT_ASSIGN_OR_RETURN(const CudaLibrary* const file, FindCudaLibrary(CudaLibraryKind::kCudnn));
  CudnnOptions options;
  options.make_current = [card] { return card->MakeCurrent(); };
  const SymbolSource symbols = [file](const char* name) { return file->Symbol(name); };
  WEFT_ASSIGN_OR_RETURN(library, OpenCudnn(symbols, std::move(options)));
  return library.get();
}

}  // namespace weft::cuda
