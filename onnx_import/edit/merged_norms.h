// SplitNorms: normalizations that an exporter made one node of.
#ifndef WEFT_ONNX_IMPORT_EDIT_MERGED_NORMS_H_
#define WEFT_ONNX_IMPORT_EDIT_MERGED_NORMS_H_

#include "absl/status/status.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"
#include "onnx_import/edit/tie_report.h"

namespace weft {

// Two fresh normalizations of one value, as GPT-NeoX has one before attention and one before the
// feed-forward part, compute the same. PyTorch's exporter leaves one node of both, which would
// train one scale for two. Adds to `edit` a node for each, with scale and bias of its own, where
//  * a LayerNormalization or RMSNormalization lies in a module P.a and reads P.a's parameters,
//  which
//    are initializers of equal elements,
//  * the graph signature names parameters of a module P.b with the same last names, and neither the
//    file nor `report.untied` has one of them, nor the file a node in P.b, and
//  * the nodes that read the result lie in as many children of P as there are such modules with
//  P.a,
//    and the signature names parameters of each child.
// The first of these modules in the signature gets the readers in the first of these children, and
// so on. The other way round, only the names would be exchanged: the numbers are equal.
// Call it after PlanUntying. Adds the new tensors to `report.untied`. ResourceExhausted where
// `budget` does not suffice.
absl::Status SplitNorms(const TensorUses& uses, TensorValues& values, CopyBudget& budget,
                        FileEdit& edit, TieReport& report);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_MERGED_NORMS_H_
