// Launches bodies on the emulator. Emulated builds of .cu files include this first:
// `-include ops/testing/emulator/emulated_launch.h`.
#ifndef WEFT_OPS_TESTING_EMULATOR_EMULATED_LAUNCH_H_
#define WEFT_OPS_TESTING_EMULATOR_EMULATED_LAUNCH_H_

#include <cstddef>
#include <type_traits>
#include <typeinfo>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/testing/emulator/emulated_gpu.h"

namespace weft::testing {

// CUDA's numbers of errors.
inline constexpr int kCudaInvalidValue = 1;
inline constexpr int kCudaInvalidConfiguration = 9;
inline constexpr int kCudaInvalidResourceHandle = 400;

// A body without its type.
struct EmulatedBody {
  const void* data = nullptr;
  size_t bytes = 0;
  const std::type_info* type = nullptr;
  void (*run)(const void* body, EmulatedGpu& gpu) = nullptr;
};

// EmulateLaunch below for any body, whose bytes it copies.
int EmulateGrid(void* stream, const cuda::LaunchGrid& grid, int max_threads,
                const EmulatedBody& body);

// Runs a copy of `body` on the grid, in the order of `stream` (native_handle() of a stream of an
// EmulatedDevice) and on its thread; does not wait. Called by work that runs on the stream, it runs
// the grid at once. 0, or the number of CUDA's error: a grid that a GPU cannot take, more than
// max_threads threads, no stream, or a stream with an error.
template <typename Body>
int EmulateLaunch(void* stream, const cuda::LaunchGrid& grid, int max_threads, const Body& body) {
  static_assert(std::is_trivially_copyable_v<Body> && sizeof(Body) <= 4096 && alignof(Body) <= 16);
  return EmulateGrid(stream, grid, max_threads,
                     {&body, sizeof(Body), &typeid(Body), [](const void* data, EmulatedGpu& gpu) {
                        (*static_cast<const Body*>(data))(gpu);
                      }});
}

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_EMULATED_LAUNCH_H_
