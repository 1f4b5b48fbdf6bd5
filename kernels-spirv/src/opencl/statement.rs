//! Statements. A kernel's control flow needs no merge instructions, only blocks and branches.

use super::{
    error::Error,
    function::{Body, Exits},
    types::Form,
    writer::Writer,
};
use naga::{Barrier, Block, Expression, Handle, Statement, SwitchCase, SwitchValue};
use rspirv::{
    dr::Operand,
    spirv::{MemorySemantics, Scope, Word},
};

impl Writer<'_> {
    fn jump(&mut self, target: Word) -> Result<(), Error> {
        match self.b.selected_block() {
            Some(_) => self.b.branch(target).map_err(|e| self.builder(&e)),
            None => Ok(()),
        }
    }

    fn label(&mut self, label: Word) -> Result<(), Error> {
        self.b
            .begin_block(Some(label))
            .map(drop)
            .map_err(|e| self.builder(&e))
    }

    pub(super) fn block(&mut self, body: &mut Body<'_>, block: &Block) -> Result<(), Error> {
        for statement in block {
            // What follows a jump is never reached.
            if self.b.selected_block().is_none() {
                break;
            }
            self.statement(body, statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, body: &mut Body<'_>, statement: &Statement) -> Result<(), Error> {
        match *statement {
            Statement::Emit(ref range) => {
                for handle in range.clone() {
                    self.value(body, handle)?;
                }
                Ok(())
            }
            Statement::Block(ref inner) => self.block(body, inner),
            Statement::If {
                condition,
                ref accept,
                ref reject,
            } => {
                let (yes, no, end) = (self.b.id(), self.b.id(), self.b.id());
                let condition = self.value(body, condition)?;
                self.b
                    .branch_conditional(condition, yes, no, [])
                    .map_err(|e| self.builder(&e))?;
                for (label, block) in [(yes, accept), (no, reject)] {
                    self.label(label)?;
                    self.block(body, block)?;
                    self.jump(end)?;
                }
                self.label(end)
            }
            Statement::Switch {
                selector,
                ref cases,
            } => self.switch(body, selector, cases),
            Statement::Loop {
                body: ref inner,
                ref continuing,
                break_if,
            } => {
                let (head, again, end) = (self.b.id(), self.b.id(), self.b.id());
                self.jump(head)?;
                self.label(head)?;
                body.exits.push(Exits {
                    leave: end,
                    again: Some(again),
                });
                self.block(body, inner)?;
                self.jump(again)?;
                self.label(again)?;
                self.block(body, continuing)?;
                body.exits.pop();
                match break_if {
                    Some(condition) => {
                        let condition = self.value(body, condition)?;
                        self.b
                            .branch_conditional(condition, end, head, [])
                            .map_err(|e| self.builder(&e))?;
                    }
                    None => self.jump(head)?,
                }
                self.label(end)
            }
            Statement::Break => match body.exits.last() {
                Some(exits) => self.jump(exits.leave),
                None => Err(self.refuse(statement, "there is no loop or switch around it")),
            },
            Statement::Continue => match body.exits.iter().rev().find_map(|exits| exits.again) {
                Some(again) => self.jump(again),
                None => Err(self.refuse(statement, "there is no loop around it")),
            },
            Statement::Return { value } => match value {
                Some(value) => {
                    let value = self.value(body, value)?;
                    self.b.ret_value(value)
                }
                None => self.b.ret(),
            }
            .map_err(|e| self.builder(&e)),
            Statement::Store { pointer, value } => self.store(body, pointer, value),
            Statement::ControlBarrier(barrier) => self.barrier(barrier),
            Statement::MemoryBarrier(barrier) => {
                let (_, memory, semantics) = self.barrier_operands(barrier)?;
                self.b
                    .memory_barrier(memory, semantics)
                    .map_err(|e| self.builder(&e))
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                self.barrier(Barrier::WORK_GROUP)?;
                let value = self.load(body, result, pointer)?;
                body.values.insert(result, value);
                self.barrier(Barrier::WORK_GROUP)
            }
            Statement::Atomic {
                pointer,
                fun,
                value,
                result,
            } => self.atomic(body, pointer, fun, value, result),
            Statement::Call {
                function,
                ref arguments,
                result,
            } => self.call(body, function, arguments, result),
            Statement::SubgroupGather {
                mode,
                argument,
                result,
            } => self.gather(body, mode, argument, result),
            Statement::SubgroupCollectiveOperation {
                op,
                collective_op,
                argument,
                result,
            } => self.collective(body, op, collective_op, argument, result),
            ref other => Err(self.refuse(other, "it has no OpenCL form that the contract uses")),
        }
    }

    fn switch(
        &mut self,
        body: &mut Body<'_>,
        selector: Handle<Expression>,
        cases: &[SwitchCase],
    ) -> Result<(), Error> {
        let selector = self.value(body, selector)?;
        let end = self.b.id();
        let labels: Vec<Word> = cases.iter().map(|_| self.b.id()).collect();
        let (mut default, mut targets) = (end, Vec::new());
        for (case, &label) in cases.iter().zip(&labels) {
            match case.value {
                SwitchValue::I32(value) => {
                    targets.push((Operand::LiteralBit32(value as u32), label))
                }
                SwitchValue::U32(value) => targets.push((Operand::LiteralBit32(value), label)),
                SwitchValue::Default => default = label,
            }
        }
        self.b
            .switch(selector, default, targets)
            .map_err(|e| self.builder(&e))?;
        body.exits.push(Exits {
            leave: end,
            again: None,
        });
        for (index, case) in cases.iter().enumerate() {
            self.label(labels[index])?;
            self.block(body, &case.body)?;
            let next = if case.fall_through {
                labels.get(index + 1).copied()
            } else {
                None
            };
            self.jump(next.unwrap_or(end))?;
        }
        body.exits.pop();
        self.label(end)
    }

    fn call(
        &mut self,
        body: &mut Body<'_>,
        function: Handle<naga::Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) -> Result<(), Error> {
        let module = self.module;
        let ty = match module.functions[function].result {
            Some(ref result) => self.type_of(result.ty, Form::Value)?,
            None => self.b.type_void(),
        };
        let mut words = Vec::new();
        for &argument in arguments {
            words.push(self.value(body, argument)?);
        }
        for global in self.handed(&self.info[function]) {
            let global = body.globals[&global];
            words.push(global.pointer);
            words.extend(global.length);
        }
        let callee = self.functions[&function];
        let word = self
            .b
            .function_call(ty, None, callee, words)
            .map_err(|e| self.builder(&e))?;
        if let Some(result) = result {
            body.values.insert(result, word);
        }
        Ok(())
    }

    fn barrier(&mut self, barrier: Barrier) -> Result<(), Error> {
        let (execution, memory, semantics) = self.barrier_operands(barrier)?;
        self.b
            .control_barrier(execution, memory, semantics)
            .map_err(|e| self.builder(&e))
    }

    /// Execution scope, memory scope and semantics.
    fn barrier_operands(&mut self, barrier: Barrier) -> Result<(Word, Word, Word), Error> {
        if barrier.contains(Barrier::TEXTURE) {
            return Err(self.refuse("textureBarrier", "kernels have no textures"));
        }
        let scope = match barrier {
            Barrier::SUB_GROUP => Scope::Subgroup,
            _ => Scope::Workgroup,
        };
        let mut semantics = MemorySemantics::ACQUIRE_RELEASE;
        if barrier.contains(Barrier::WORK_GROUP) {
            semantics |= MemorySemantics::WORKGROUP_MEMORY;
        }
        if barrier.contains(Barrier::STORAGE) {
            semantics |= MemorySemantics::CROSS_WORKGROUP_MEMORY;
        }
        if barrier == Barrier::SUB_GROUP {
            semantics |=
                MemorySemantics::WORKGROUP_MEMORY | MemorySemantics::CROSS_WORKGROUP_MEMORY;
        }
        let scope = self.constant_u32(scope as u32);
        Ok((scope, scope, self.constant_u32(semantics.bits())))
    }
}
