// Updates in turn: several losses of one model, each for parameters of its own (GANs).
#ifndef WEFT_TRAINING_JOB_ALTERNATION_H_
#define WEFT_TRAINING_JOB_ALTERNATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "platform/file_system.h"
#include "training/data/data_set.h"
#include "training/data/data_spec.h"
#include "training/graph/training_spec.h"
#include "training/job/job_spec.h"
#include "training/job/turn_order.h"

namespace weft {

// One of the updates that a job makes in turn.
struct UpdateSpec {
  std::string name;
  // Its loss and its optimizer. AssignParameters sets TrainingSpec::updates.
  TrainingSpec training;
  std::vector<std::string> train;     // patterns of the parameters that it changes
  int64_t steps = 1;                  // in a row
  int64_t batch = 0;                  // samples of its batches; 0: the job's
  std::optional<uint64_t> seed = {};  // of the order of its samples; none: the job's
};

// "critic: loss=output:loss_d, train=critic.*+embed.*, steps=5, optimizer=rmsprop, lr=5e-5": a name
// of letters, digits, '_' and '-', and numbers and names by key. `loss` and `train` must be there.
// What the text leaves out is that of `base`; but an optimizer has its own usual learning rate and
// options. Other keys: loss-output, weight-decay, clip-norm, batch, seed, and the options of the
// optimizer. InvalidArgument names the update and the key.
absl::StatusOr<UpdateSpec> ParseUpdate(const std::string& text, const TrainingSpec& base);

// Gives each update its parameters, by name: those of the model's trainable variables that its
// patterns call. Variables of no update stop training; their names are returned, as messages show
// them. Learning rates and weight decays by pattern go to the updates that have such parameters.
// InvalidArgument where a pattern means none, where two updates have a parameter or a name in
// common, or where there is no update.
absl::StatusOr<std::vector<std::string>> AssignParameters(Graph& model,
                                                          std::vector<UpdateSpec>& updates);

// The samples of each update: of `data` the files of the inputs that its loss depends on, in
// batches and in an order of its own. So inputs that no update reads together may have different
// numbers of samples. Errors are those of DataSet::Open and of a loss that is not there.
absl::StatusOr<std::vector<std::shared_ptr<const DataSet>>> OpenUpdateData(
    FileSystem& files, const Graph& model, const std::vector<UpdateSpec>& updates,
    const DataSpec& data);

// A job whose steps are those of the updates in turn (TurnOrder), `steps` in all. Each update is
// prepared as a training job of its own (PrepareTraining), with programs called NAME/SHAPE over the
// variables of all. A step reads the samples, the random numbers and the learning rate of its place
// among the steps of its update, and an optimizer counts those. Of an update's loss, gradients flow
// through the parameters of the others, which stay as they are; BatchNormalization and Dropout
// train in all of them. InvalidArgument where a loss does not depend on a parameter of its update;
// Unimplemented for plans other than replicas, and for half precision with a loss scale.
absl::StatusOr<PreparedJob> PrepareAlternation(
    const Graph& model, const std::vector<UpdateSpec>& updates,
    const std::vector<std::shared_ptr<const DataSet>>& data, const JobSpec& spec, int64_t steps);

// The order of the updates of a job. REQUIRES: it has some.
TurnOrder TurnOrderOf(const std::vector<PreparedUpdate>& updates);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_ALTERNATION_H_
