#include "tensor/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"
#include "tensor/cuda/cuda_meaning.h"

namespace weft {

bool EndsTheDevice(CudaCode code) {
  const int number = static_cast<int>(code);
  return code == CudaCode::kEccUncorrectable || code == CudaCode::kNvlinkUncorrectable ||
         code == CudaCode::kContained || code == CudaCode::kExternalDevice ||
         code == CudaCode::kIllegalAddress || code == CudaCode::kLaunchTimeout ||
         (number >= static_cast<int>(CudaCode::kAssert) && number <= 719 && number != 711 &&
          number != 712 && number != 713);
}

absl::Status CudaStatus(CudaRuntime& runtime, CudaCode code, std::string_view subject,
                        std::string_view action) {
  if (code == CudaCode::kSuccess) return absl::OkStatus();
  const CudaMeaning meaning = MeaningOf(code);
  return absl::Status(
      meaning.code, absl::StrCat(absl::string_view(subject.data(), subject.size()), " cannot ",
                                 absl::string_view(action.data(), action.size()), ": CUDA says ",
                                 runtime.ErrorName(code), " (", static_cast<int>(code), "), ",
                                 runtime.ErrorText(code), "; ",
                                 absl::string_view(meaning.advice.data(), meaning.advice.size())));
}

}  // namespace weft
