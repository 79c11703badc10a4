// Names of the metadata_props with which a file says what ONNX has no field for; the inside of
// graph_wire.
#ifndef WEFT_ONNX_IMPORT_ANNOTATIONS_H_
#define WEFT_ONNX_IMPORT_ANNOTATIONS_H_

namespace weft::annotation {

// On nodes and values: the place of the id among the ids of its kind, from 0.
inline constexpr char kId[] = "weft.id";
// On nodes.
inline constexpr char kPhase[] = "weft.phase";
inline constexpr char kStage[] = "weft.stage";
// On nodes and values: Origin.
inline constexpr char kOrigin[] = "weft.origin";
inline constexpr char kLogicalValue[] = "weft.logical_value";
inline constexpr char kGradient[] = "weft.gradient";
// On values that are shards: "global shape;offset", as in "4,6;2,0".
inline constexpr char kPlacement[] = "weft.placement";
// On graph inputs: "step"; absent means per sample.
inline constexpr char kRole[] = "weft.role";
// On graph inputs that are variables: the variable's name, and its fields.
inline constexpr char kVariable[] = "weft.variable";
inline constexpr char kVariableIndex[] = "weft.variable_index";
inline constexpr char kTrainable[] = "weft.trainable";
inline constexpr char kSlotOf[] = "weft.slot_of";
inline constexpr char kUpdate[] = "weft.update";
// On graphs: operator sets of the model that the graph was imported from, by domain after the
// prefix.
inline constexpr char kOpsetPrefix[] = "weft.opset.";
// On graphs without a name (ONNX wants one).
inline constexpr char kUnnamed[] = "weft.unnamed";

}  // namespace weft::annotation

#endif  // WEFT_ONNX_IMPORT_ANNOTATIONS_H_
