// RestoreBiases: biases of zeros that an exporter left out.
#ifndef WEFT_ONNX_IMPORT_EDIT_LOST_BIASES_H_
#define WEFT_ONNX_IMPORT_EDIT_LOST_BIASES_H_

#include "absl/status/status.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tie_report.h"

namespace weft {

// PyTorch's exporter drops the bias of Gemm, Conv and ConvTranspose where all its elements are 0,
// as in a fresh module; it could not train then. The graph signature still names the parameter.
// Adds to `edit` such a bias, of zeros and with its name, where
//  * a node without a bias lies in a module M, or its weight is called "M.weight" (this first where
//    M has running statistics: a normalization that was folded into the node),
//  * "M.bias" is a parameter in the signature, and nothing in the file is called so, and
//  * no tensor of `report.untied` has that name.
// Other nodes of a module that lack biases get, in order, the lost parameters of the module, and of
// parts of it that make no node, that are called "bias", "bias_..." or "..._bias": where there are
// as many of these as of those.
// Nodes of one name get one bias. Call it after PlanUntying. Adds what it did to `report`. A file
// without a signature, and one of an IR version below 4, stays as it is. ResourceExhausted where
// `budget` does not suffice for the biases.
absl::Status RestoreBiases(const TensorUses& uses, CopyBudget& budget, FileEdit& edit,
                           TieReport& report);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_LOST_BIASES_H_
