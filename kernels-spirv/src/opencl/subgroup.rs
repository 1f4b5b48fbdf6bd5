//! Exchange and reductions within a subgroup.

use super::{error::Error, function::Body, interface::Capability, writer::Writer};
use naga::{
    CollectiveOperation, Expression, GatherMode, Handle, ScalarKind as K, SubgroupOperation as Op,
    TypeInner,
};
use rspirv::spirv::{GroupOperation, Scope};

impl Writer<'_> {
    pub(super) fn gather(
        &mut self,
        body: &mut Body<'_>,
        mode: GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<(), Error> {
        if self.inner_of(body, argument).scalar_kind() == Some(K::Bool) {
            return Err(self.refuse("a shuffle of bool", "numbers are exchanged"));
        }
        let ty = self.type_word(body, result)?;
        let value = self.value(body, argument)?;
        let (GatherMode::Broadcast(index)
        | GatherMode::Shuffle(index)
        | GatherMode::ShuffleDown(index)
        | GatherMode::ShuffleUp(index)
        | GatherMode::ShuffleXor(index)) = mode
        else {
            return Err(self.refuse(
                mode,
                "which invocation is first, or in a quad, is not the same everywhere",
            ));
        };
        self.require(Capability::SubgroupShuffle);
        let index = self.value(body, index)?;
        let word = match mode {
            GatherMode::ShuffleXor(_) => self.b.subgroup_shuffle_xor_intel(ty, None, value, index),
            GatherMode::ShuffleDown(_) => self
                .b
                .subgroup_shuffle_down_intel(ty, None, value, value, index),
            GatherMode::ShuffleUp(_) => self
                .b
                .subgroup_shuffle_up_intel(ty, None, value, value, index),
            _ => self.b.subgroup_shuffle_intel(ty, None, value, index),
        }
        .map_err(|e| self.builder(&e))?;
        body.values.insert(result, word);
        Ok(())
    }

    pub(super) fn collective(
        &mut self,
        body: &mut Body<'_>,
        op: Op,
        over: CollectiveOperation,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<(), Error> {
        let shape = self.inner_of(body, argument);
        let TypeInner::Scalar(scalar) = shape else {
            return Err(self.refuse(op, "a subgroup reduces scalars"));
        };
        let ty = self.type_word(body, result)?;
        let value = self.value(body, argument)?;
        let scope = self.constant_u32(Scope::Subgroup as u32);
        let over = match over {
            CollectiveOperation::Reduce => GroupOperation::Reduce,
            CollectiveOperation::InclusiveScan => GroupOperation::InclusiveScan,
            CollectiveOperation::ExclusiveScan => GroupOperation::ExclusiveScan,
        };
        let b = &mut self.b;
        let word = match (op, scalar.kind) {
            (Op::All, K::Bool) => b.group_all(ty, None, scope, value),
            (Op::Any, K::Bool) => b.group_any(ty, None, scope, value),
            (Op::Add, K::Sint | K::Uint) => b.group_i_add(ty, None, scope, over, value),
            (Op::Min, K::Sint) => b.group_s_min(ty, None, scope, over, value),
            (Op::Min, K::Uint) => b.group_u_min(ty, None, scope, over, value),
            (Op::Max, K::Sint) => b.group_s_max(ty, None, scope, over, value),
            (Op::Max, K::Uint) => b.group_u_max(ty, None, scope, over, value),
            (_, K::Float) => {
                return Err(
                    self.refuse(op, "a subgroup's sum of floats has no fixed order: shuffle")
                );
            }
            _ => {
                return Err(self.refuse(
                    op,
                    "OpenCL 2 reduces by sum, minimum and maximum only: shuffle",
                ));
            }
        }
        .map_err(|e| self.builder(&e))?;
        self.require(Capability::SubgroupReduce);
        body.values.insert(result, word);
        Ok(())
    }
}
