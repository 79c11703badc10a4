// Whether a card can be used by this build on this machine, and if not, why and what to do.
#ifndef WEFT_TENSOR_CUDA_CUDA_SETUP_H_
#define WEFT_TENSOR_CUDA_CUDA_SETUP_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tensor/cuda/cuda_runtime.h"

namespace weft {

// The oldest compute capability that this build has kernels for; later ones have them, too.
inline constexpr int kOldestCudaMajor = 8;
inline constexpr int kOldestCudaMinor = 0;
// Up to this major one they are machine code. For later cards the driver compiles PTX, which it
// reads in the version of its own CUDA and of earlier ones alone.
inline constexpr int kNewestCudaMajor = 9;

// Which card is asked for.
struct CudaCard {
  int number = 0;      // CUDA's, from 0, among those that the process may see
  std::string device;  // named in errors: "cuda:0"
  // What the environment's CUDA_VISIBLE_DEVICES says, if it is there.
  std::optional<std::string> visible_devices = {};
};

// "13.0" of 13000.
std::string CudaVersionText(int version);

// "NVIDIA L4, compute capability 8.9".
std::string CudaCardText(const CudaProperties& card);

// OK when there is a driver of CUDA that this build's runtime works with. FailedPrecondition with
// both versions. `device` is named: "cuda:0". Does not look at cards.
absl::Status CheckCudaDriver(CudaRuntime& runtime, const std::string& device);

// The number of cards that the process sees, at least 1. FailedPrecondition without a driver, with
// one that is too old, and where there is no card; with CUDA_VISIBLE_DEVICES where it is set.
absl::StatusOr<int> CountCudaCards(CudaRuntime& runtime, const CudaCard& card);

// What the card is, when it can be used as far as can be told without using it: no context is made.
// Besides the errors of CountCudaCards: InvalidArgument where there are not so many cards,
// Unimplemented where its architecture is too old, FailedPrecondition where its compute mode
// forbids it, or where the driver is too old to compile this build's PTX for the card.
absl::StatusOr<CudaProperties> CheckCudaCard(CudaRuntime& runtime, const CudaCard& card);

// The same, and makes the card the current device of this thread, with a context of CUDA. Besides:
// Unavailable where it failed or another process holds it, ResourceExhausted where its memory does
// not hold CUDA's own data (with what is free).
absl::StatusOr<CudaProperties> SetUpCudaCard(CudaRuntime& runtime, const CudaCard& card);

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_SETUP_H_
