// Runs the tests of the families on the GPU that WEFT_TEST_DEVICE names (default cuda:0).
#include <cstdlib>

#include "gmock/gmock.h"
#include "ops/kernels/cuda/dnn/cudnn_provider.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "ops/kernels/cuda/fusion/nvrtc_provider.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "ops/kernels/cuda/linear/cublaslt_provider.h"

int main(int argc, char** argv) {
  setenv("WEFT_TEST_DEVICE", "cuda:0", /*overwrite=*/0);
  // The tests link libraries for the emulator, too.
  weft::cuda::SetBlasLtProvider(weft::cuda::CublasLtOf);
  weft::cuda::SetDnnProvider(weft::cuda::CudnnOf);
  weft::cuda::SetKernelCompilerProvider(weft::cuda::NvrtcOf);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
