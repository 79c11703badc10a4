// What cuDNN's normalizations mean, for the library of ops/kernels/cuda/dnn/testing/fake_cudnn.h.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_TESTING_FAKE_NORMALIZATION_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_TESTING_FAKE_NORMALIZATION_H_

#include <cstdint>
#include <map>

#include "ops/kernels/cuda/dnn/testing/fake_cudnn.h"

namespace weft::cuda {

// The attributes, with their types, that the documentation demands of a forward or a backward
// normalization; none of other descriptors.
std::map<int, cudnnBackendAttributeType_t> DemandedOfNormalization(
    cudnnBackendDescriptorType_t type);

// Computes such an operation on the host in double, from the definition. Fails the test where
// tensors are not as the documentation says: other types or sizes of parameters and statistics, an
// epsilon that is not a float32 on the host, an operand without an address or not aligned.
void NormalizeOnHost(const FakeDescriptor& operation, const std::map<int64_t, void*>& addresses);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_TESTING_FAKE_NORMALIZATION_H_
