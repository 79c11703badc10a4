// What texts for NVRTC find where they include the standard library, which NVRTC does not have.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_STANDARD_HEADERS_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_STANDARD_HEADERS_H_

#include <string>
#include <vector>

namespace weft::cuda {

// A header that a text may include by its name. A value.
struct TextHeader {
  std::string name;  // as between the quotes of the include
  std::string text;
};

// The parts of the standard library and of CUDA's 16-bit floats that the headers of our bodies use:
// types, numbers, functions of real numbers, conversions. For GPUs alone.
std::vector<TextHeader> StandardHeaders();

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_STANDARD_HEADERS_H_
