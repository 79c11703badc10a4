// ONNX's multi-device annotations (IR version 11: device configurations, sharding specs, pipeline
// stages): read as a Plan, and a Plan written as them.
#ifndef WEFT_ONNX_IMPORT_DEVICE_ANNOTATIONS_H_
#define WEFT_ONNX_IMPORT_DEVICE_ANNOTATIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/plan.h"
#include "onnx_import/importer.h"

namespace weft {

// The metadata of a model under which AnnotateModel keeps what the annotations cannot say.
inline constexpr char kPlanMetadata[] = "weft.plan";

// A device configuration of an ONNX model (IR version 11).
struct DeviceConfiguration {
  std::string name;
  int devices = 0;
  std::vector<std::string> device_names;  // empty, or one for each
};

// Those that the model carries, in the file's order.
std::vector<DeviceConfiguration> DeviceConfigurationsOf(const ImportedModel& model);

// Whether some initializer lies in another file.
bool HasExternalTensors(const ImportedModel& model);

// What the nodes say under one of them: the mesh, the worker of each rank (device k is the
// cluster's worker k), stages by node, the tensor shardings of parameters and other values. All
// else is left open.
//
//  * A pipeline_stage is a stage of the pipeline.
//  * Parameters are split over the tensor axis, along one of their axes, also seen as blocks x rest
//    (two factors, of which the second is split).
//  * Other tensors are split over the data axis along axis 0, the batch, and over the tensor axis
//    along one other. Inputs of the model along the batch only.
//  * What is left of the devices holds copies: replicas of the data axis.
//  * Devices that hold a copy of the same shard are a group of index_to_device_group_map.
//
// InvalidArgument, with node, tensor and axis, for annotations that break ONNX's rules, contradict
// each other, or describe no such mesh. REQUIRES: shapes are inferred.
absl::StatusOr<Plan> PlanOfConfiguration(const ImportedModel& model,
                                         const std::string& configuration);

// The model's file with `plan`, which is complete, written as annotations under a configuration of
// this name, in the place of those of the same name. Its devices are the workers that the plan
// uses, in the cluster's order, `worker_names` the names of all. The metadata kPlanMetadata becomes
// `plan_text`. IR version 11 or later. Tensors stay where they are, those in other files too.
// InvalidArgument for a plan with several stages per rank.
absl::StatusOr<std::string> AnnotateModel(const ImportedModel& model, const Plan& plan,
                                          const std::string& configuration,
                                          const std::vector<std::string>& worker_names,
                                          const std::string& plan_text);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_DEVICE_ANNOTATIONS_H_
