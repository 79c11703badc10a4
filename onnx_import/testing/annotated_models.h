// Models with multi-device annotations, for tests of other folders.
#ifndef WEFT_ONNX_IMPORT_TESTING_ANNOTATED_MODELS_H_
#define WEFT_ONNX_IMPORT_TESTING_ANNOTATED_MODELS_H_

#include <string>

namespace weft::testing {

// y [N,2] = tanh(x [N,4] up [4,6]) down [6,2] + bias, as an ONNX file.
std::string TwoLayersBytes();

// The same for four devices: the first layer on devices 0 and 1, `up` cut along axis `up_axis`; the
// second on devices 2 and 3, `down` cut by rows. The configuration is called "two by two".
std::string TwoLayersOnFourDevicesBytes(int up_axis = 1);

}  // namespace weft::testing

#endif  // WEFT_ONNX_IMPORT_TESTING_ANNOTATED_MODELS_H_
