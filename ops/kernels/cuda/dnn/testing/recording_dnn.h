// RecordingDnn: convolutions, attention and normalizations on the emulated GPU, for tests of what
// calls cuDNN.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDING_DNN_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDING_DNN_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "platform/mutex.h"

namespace weft::testing {

// Computes each of them from its definition, by the sizes and strides of its spec, on the stream
// and in the memory of the emulator, which checks every access against its allocation. What the
// real library asks of its arguments is checked first: the spec (CheckConvolution and its kin),
// addresses and workspace as aligned as it wants, a stream, operands that do not lie over the
// result. A broken rule is an error of Run. It writes over all of the workspace, so that a
// workspace that is too small, or used twice at once, is seen. Linking it makes it the library of
// every device. Thread-safe; lives for ever.
class RecordingDnn final : public cuda::Dnn {
 public:
  struct Call {
    cuda::ConvolutionSpec spec;
    cuda::ConvolutionOperands operands;
  };

  struct AttentionCall {
    cuda::AttentionSpec spec;
    cuda::AttentionOperands operands;
  };

  struct AttentionGradientCall {
    cuda::AttentionSpec spec;
    cuda::AttentionGradientOperands operands;
  };

  struct NormalizationCall {
    cuda::NormalizationSpec spec;
    cuda::NormalizationOperands operands;
  };

  static RecordingDnn& Get();

  absl::StatusOr<std::unique_ptr<cuda::PreparedConvolution>> Prepare(
      const cuda::ConvolutionSpec& spec) override;
  absl::StatusOr<std::unique_ptr<cuda::PreparedAttention>> PrepareAttention(
      const cuda::AttentionSpec& spec) override;
  absl::StatusOr<std::unique_ptr<cuda::PreparedAttentionGradient>> PrepareAttentionGradient(
      const cuda::AttentionSpec& spec) override;
  absl::StatusOr<std::unique_ptr<cuda::PreparedNormalization>> PrepareNormalization(
      const cuda::NormalizationSpec& spec) override;

  // The convolutions that ran since the last TakeCalls.
  std::vector<Call> TakeCalls() ABSL_LOCKS_EXCLUDED(mutex_);
  // The same of attention.
  std::vector<AttentionCall> TakeAttentions() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<AttentionGradientCall> TakeAttentionGradients() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<NormalizationCall> TakeNormalizations() ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on convolutions with a bias are refused, those that add, or all that is asked for.
  struct Refusals {
    bool bias = false;
    bool adding = false;
    bool all = false;
  };
  void Refuse(const Refusals& refusals) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class RecordedConvolution;
  friend class RecordedAttention;
  friend class RecordedAttentionGradient;
  friend class RecordedNormalization;

  void Record(const Call& call) ABSL_LOCKS_EXCLUDED(mutex_);
  void Record(const AttentionCall& call) ABSL_LOCKS_EXCLUDED(mutex_);
  void Record(const AttentionGradientCall& call) ABSL_LOCKS_EXCLUDED(mutex_);
  void Record(const NormalizationCall& call) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<AttentionCall> attentions_ ABSL_GUARDED_BY(mutex_);
  std::vector<AttentionGradientCall> attention_gradients_ ABSL_GUARDED_BY(mutex_);
  std::vector<NormalizationCall> normalizations_ ABSL_GUARDED_BY(mutex_);
  Refusals refusals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDING_DNN_H_
