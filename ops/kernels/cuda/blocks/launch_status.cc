#include "ops/kernels/cuda/blocks/launch_status.h"

#include "tensor/cuda/cuda_meaning.h"

namespace weft::cuda {

absl::Status RefusedLaunch(int code, absl::string_view kernel) {
  const CudaMeaning meaning = MeaningOf(static_cast<CudaCode>(code));
  const auto text = [](std::string_view view) {
    return absl::string_view(view.data(), view.size());
  };
  return absl::Status(
      meaning.code, absl::StrCat("CUDA refuses to launch ", kernel, " with error ", code,
                                 meaning.name.empty() ? "" : absl::StrCat(", ", text(meaning.name)),
                                 "; ", text(meaning.advice)));
}

}  // namespace weft::cuda
