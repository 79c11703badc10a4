// Modules of the author's program, as PyTorch's exporters write them on nodes.
#ifndef WEFT_ONNX_IMPORT_CODEC_MODULE_PATH_H_
#define WEFT_ONNX_IMPORT_CODEC_MODULE_PATH_H_

#include <string>
#include <string_view>

namespace weft {

// The metadata of a node in which torch.export writes the modules around it.
inline constexpr std::string_view kNameScopesKey = "pkg.torch.onnx.name_scopes";

// The innermost module in such a list of scopes: "layers.0.fc" of `['', 'layers.0.fc', 'linear']`,
// whose last entry is the node's own name. The second call of a module, "layers.0.fc@1", is the
// module. "" where there is none, where the text is too long, and for what has other letters than
// printable ASCII, or one of "@*?/": that is no path.
std::string ModuleInScopes(std::string_view text);

// The module that the name of a node tells, as TorchScript's exporter has it: "layer1.0.conv1" of
// "/layer1/layer1.0/conv1/Conv" (a Sequential's name is in its children's). "" for names that do
// not begin with a slash. Later calls of a module have numbers here, "norm_1", as modules can have.
std::string ModuleInNodeName(std::string_view node);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_MODULE_PATH_H_
