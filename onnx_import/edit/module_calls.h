// FindModuleCalls: which modules in the names of nodes are later calls of one module.
#ifndef WEFT_ONNX_IMPORT_EDIT_MODULE_CALLS_H_
#define WEFT_ONNX_IMPORT_EDIT_MODULE_CALLS_H_

#include <map>
#include <set>
#include <string>

namespace weft {

// TorchScript's exporter puts a number on the path of a module that is called again:
// "layers.0.norm_1" is the second call of "layers.0.norm", whose nodes read the same tensors. A
// module that the author called "norm_1" looks the same. A path "M_k" counts as a call of M where
//  - nodes of M and of all M_1 ... M_(k-1) are in the file, as they are if M is called k times,
//  - no name of `names` begins with "M_k.": a module has its parameters called after it,
//  - it reads no parameter that M does not read. Exponents and epsilons are no parameters: the
//    exporter writes them anew for each call.
// Two modules "norm" and "norm_1" of which exporters have merged every tensor fulfil that too, and
// are taken for one.
//
// `tensors_of`: by path (ModuleInNodeName), the tensors that its nodes read as parameters, none
// too. `names`: those of the file's tensors. Returns the module of each later call. Takes time in
// proportion to both, times the logarithm of their sizes.
std::map<std::string, std::string> FindModuleCalls(
    const std::map<std::string, std::set<int>>& tensors_of, const std::set<std::string>& names);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_MODULE_CALLS_H_
