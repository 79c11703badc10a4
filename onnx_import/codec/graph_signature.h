// The graph signature that torch.export leaves in a file: the module's parameters and buffers.
#ifndef WEFT_ONNX_IMPORT_CODEC_GRAPH_SIGNATURE_H_
#define WEFT_ONNX_IMPORT_CODEC_GRAPH_SIGNATURE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

namespace onnx {
class ModelProto;
}  // namespace onnx

// What a tensor was in the module that was exported.
enum class ExportedKind : uint8_t {
  kParameter,  // of requires_grad or not: that is not written
  kBuffer,
  kConstant,  // a tensor that the code made
};

// The kind of such a word: "PARAMETER", "BUFFER", "CONSTANT_TENSOR"; nothing for others.
std::optional<ExportedKind> KindNamed(std::string_view word);

struct SignatureEntry {
  std::string argument = {};  // "p_fc_weight"; may be empty
  std::string target = {};    // "fc.weight", its name in the module; may be empty
  ExportedKind kind = ExportedKind::kParameter;
};

// The entries of such a text, in its order, which is that of the module's named_parameters and
// named_buffers: a parameter with several names is there under each. Takes both ways that PyTorch
// prints one: lines `p_fc_weight: PARAMETER target='fc.weight'` (2.7 and later), and
// `InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_fc_weight'),
// target='fc.weight', ...)`. A text that nobody needs to trust: what is too long or not as expected
// is left out. Linear in the text.
std::vector<SignatureEntry> ReadGraphSignature(std::string_view text);

// The same of the text in a file's metadata; empty without one.
std::vector<SignatureEntry> GraphSignatureOf(const onnx::ModelProto& model);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_GRAPH_SIGNATURE_H_
