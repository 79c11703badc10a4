// A model that is little but its weights, of several gigabytes if need be.
#ifndef WEFT_ONNX_IMPORT_TESTING_LARGE_MODEL_H_
#define WEFT_ONNX_IMPORT_TESTING_LARGE_MODEL_H_

#include <cstdint>
#include <string>

namespace weft::testing {

// x [N,size] times `layers` matrices [size,size] of float32, one after the other, gives y: x times
// 2^layers, since each matrix has 2 on its diagonal. FOLDER/model.onnx and FOLDER/weights.bin, a
// sparse file: on the disk it takes a page per row, in memory, where it is mapped, all of
// 4 size^2 layers bytes. In the model itself, weights are raw data at odd places, and all of them
// are in memory while it is written (up to 1 GiB). False when the disk is too small.
enum class WeightPlace { kBesideTheModel, kInTheModel };
bool WriteLargeModel(const std::string& folder, int64_t size, int layers,
                     WeightPlace place = WeightPlace::kBesideTheModel);

}  // namespace weft::testing

#endif  // WEFT_ONNX_IMPORT_TESTING_LARGE_MODEL_H_
