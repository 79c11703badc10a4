// Dropout and DropoutGrad.
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/random/dropout_body.h"

namespace weft::cuda {
namespace {

constexpr int kDropoutThreads = 256;
constexpr int64_t kDropoutBlocks = int64_t{8} * 160 * 4;

LaunchGrid DropoutGrid(int64_t threads) {
  return {.blocks = Blocks(threads, kDropoutThreads, kDropoutBlocks), .threads = kDropoutThreads};
}

// Four elements lie on an address that one access takes, 16 bytes at most.
template <typename T>
bool HasFours(const void* address) {
  constexpr uintptr_t kBytes = sizeof(T) == 8 ? 16 : 4 * sizeof(T);
  return reinterpret_cast<uintptr_t>(address) % kBytes == 0;
}

template <typename T, typename Index>
int LaunchDropoutAs(const DropoutCall& call, const BroadcastMap<1, Index>& map) {
  const bool has_fours = call.places.has_fours && HasFours<T>(call.x) && HasFours<T>(call.y) &&
                         (call.mask == nullptr || HasFours<uint8_t>(call.mask));
  const int64_t packets = has_fours ? call.count / 4 : 0;
  return Launch<kDropoutThreads>(
      call.queue, DropoutGrid(packets > 0 ? packets : call.count),
      DropoutBody<T, Index>{static_cast<const T*>(call.x), static_cast<T*>(call.y), call.mask,
                            call.kept, call.count, packets, call.places.first, map, call.key,
                            call.mode});
}

template <typename T>
int LaunchDropout(const DropoutCall& call) {
  return call.places.fits_narrow ? LaunchDropoutAs<T>(call, call.places.narrow)
                                 : LaunchDropoutAs<T>(call, call.places.wide);
}

template <typename T>
int LaunchDropoutGrad(const DropoutGradCall& call) {
  const bool has_fours =
      HasFours<T>(call.dy) && HasFours<T>(call.dx) && HasFours<uint8_t>(call.mask);
  const int64_t packets = has_fours ? call.count / 4 : 0;
  return Launch<kDropoutThreads>(
      call.queue, DropoutGrid(packets > 0 ? packets : call.count),
      DropoutGradBody<T>{static_cast<const T*>(call.dy), call.mask, static_cast<T*>(call.dx),
                         call.count, packets, call.mode});
}

}  // namespace

int LaunchTwister(const TwisterCall& call) {
  if (call.count == 0) return 0;
  return Launch<256>(call.queue, {.blocks = 1, .threads = 256}, TwisterBody{call});
}

DropoutLaunch FindDropout(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return LaunchDropout<float>;
    case DType::kFloat64:
      return LaunchDropout<double>;
    case DType::kFloat16:
      return LaunchDropout<Float16>;
    case DType::kBfloat16:
      return LaunchDropout<Bfloat16>;
    default:
      return nullptr;
  }
}

DropoutGradLaunch FindDropoutGrad(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return LaunchDropoutGrad<float>;
    case DType::kFloat64:
      return LaunchDropoutGrad<double>;
    case DType::kFloat16:
      return LaunchDropoutGrad<Float16>;
    case DType::kBfloat16:
      return LaunchDropoutGrad<Bfloat16>;
    default:
      return nullptr;
  }
}

}  // namespace weft::cuda
